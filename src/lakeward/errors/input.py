# SPDX-License-Identifier: Apache-2.0
"""The input of a person or program is wrong; nothing was changed."""

from __future__ import annotations

from lakeward.errors.root import LakewardError


class InvalidInput(LakewardError):
    code = "invalid-input"
    http_status = 400


class InvalidConfig(InvalidInput):
    code = "invalid-config"
    template = "configuration {where}: {reason}"
    where: str
    reason: str


class UnknownOption(InvalidConfig):
    code = "unknown-option"
    template = "{where}: there is no option {key!r}{nearest_text}; `lakeward config` lists them all"
    key: str
    nearest: str | None = None
    reason: str = "unknown option"

    @property
    def message(self) -> str:
        hint = f" (did you mean {self.nearest!r}?)" if self.nearest else ""
        return self.template.format(**self.facts, nearest_text=hint)


class InvalidOptionValue(InvalidConfig):
    code = "invalid-option-value"
    template = "{where}: {key} = {value!r} is not allowed: {reason}; allowed: {allowed}"
    key: str
    value: str
    allowed: str


class InvalidTable(InvalidInput):
    code = "invalid-table"
    template = "table {table}: {field} {value!r}: {reason}"
    table: str
    field: str
    value: str
    reason: str


class UnsupportedType(InvalidInput):
    code = "unsupported-type"
    template = "{where}: type {type} is not supported by {by}: {reason}"
    where: str
    type: str
    by: str
    reason: str


class UnsupportedBucketKey(InvalidInput):
    code = "unsupported-bucket-key"
    template = "column {column} of type {type} cannot be a bucket key of the {function} bucket function: {reason}"
    column: str
    type: str
    function: str
    reason: str


class InvalidAlter(InvalidInput):
    code = "invalid-alter"
    template = "table {table} cannot be altered: {change}: {reason}"
    table: str
    change: str
    reason: str


class InvalidRows(InvalidInput):
    code = "invalid-rows"
    template = "table {table}, row {row}, column {column}: {reason}"
    table: str
    row: int
    column: str
    reason: str

    def at_row(self, row: int) -> InvalidRows:
        """The same of a row in a longer list."""
        return InvalidRows(table=self.table, row=row, column=self.column, reason=self.reason)


class TooManyBadRows(InvalidInput):
    code = "too-many-bad-rows"
    http_status = 429
    template = (
        "table {table}: {rows} rows of the last minute do not fit, and {limit} are quarantined: correct the source, or "
        "raise table.schema.quarantine.max-rows-per-minute; nothing of this request is stored"
    )
    table: str
    rows: int
    limit: int


class InvalidRequest(InvalidInput):
    code = "invalid-request"
    template = "{what}: {reason}"
    what: str
    reason: str


class NotJson(InvalidInput):
    code = "not-json"
    http_status = 415
    template = "{what} wants Content-Type application/json, got {found!r}"
    what: str
    found: str


class UnsupportedBody(InvalidInput):
    code = "unsupported-body"
    http_status = 415
    template = "{header} {value!r} is not supported; send one of {supported}"
    header: str
    value: str
    supported: str


class IdempotencyKeyReused(InvalidInput):
    code = "idempotency-key-reused"
    http_status = 422
    template = "Idempotency-Key {key!r} was used for other rows of table {table}; send these rows with a new key"
    key: str
    table: str


class SparkUnsupported(InvalidInput):
    code = "spark-unsupported"
    template = "{what} is not supported: {reason}"
    what: str
    reason: str


class JavaNotFound(InvalidInput):
    code = "java-not-found"
    template = "Spark needs Java {wanted}; looked at {looked_at}; set JAVA_HOME, or `pip install {package}`"
    looked_at: str
    wanted: str = "17 or newer"
    package: str = "lakeward[jre]"


class BundleNotFound(InvalidInput):
    code = "bundle-not-found"
    template = (
        "Hudi's jar {artifact} cannot be had: {reason}; install mvn and let this machine reach its repository once, or "
        "copy the jar here and name it in LAKEWARD_HUDI_BUNDLE"
    )
    artifact: str
    reason: str


class UnsafeLake(InvalidInput):
    code = "unsafe-lake"
    template = "lake {lake} cannot be used: {reason}"
    lake: str
    reason: str
