# SPDX-License-Identifier: Apache-2.0
"""Every error Lakeward raises, in one tree. Imports nothing of ours.

    LakewardError
    ├── InvalidInput                what a person or program handed in is wrong; nothing was changed
    │   ├── InvalidConfig           UnknownOption, InvalidOptionValue
    │   ├── InvalidTable, UnsupportedType, UnsupportedBucketKey, InvalidAlter
    │   ├── InvalidRows             row, column, reason
    │   ├── InvalidRequest          malformed HTTP, Flight or plan input
    │   └── NotJson, SparkUnsupported, JavaNotFound, UnsafeLake
    ├── NotFound                    TableNotFound, SideNotFound, PartitionNotFound, SnapshotGone, OffsetOutOfRange,
    │                               PluginNotFound
    ├── AlreadyExists               TableAlreadyExists, LakeMismatch, LakeNotEmpty
    ├── Refused                     Unauthorized, Forbidden, ForeignCaller, IncompatibleVersion, InsecureBinding
    ├── HotStoreError               BucketStopped (BucketUnavailable), CorruptBatch, OutOfSequence, DiskFull,
    │                               QuotaExceeded, Overloaded, PartitionExpired, DataFolderLocked, DataFolderUnusable,
    │                               DataFolderVersion, UnsafePath, WritesPaused, SchemaChanged, LogTooShort,
    │                               HotStoreBehind, LogRewritten, KvFailed, FlussError
    ├── CoordinatorError            FencedEpoch, LeaseLost, UnknownWork, Superseded, LedgerGap, IllegalTransition,
    │                               TableBusy
    ├── CommitError                 CommitConflict, CommitUnknown
    ├── LakeError                   LakeUnavailable, LakeRolledBack, LakeBehind, LakeForeign, LakeTampered, LakeOverlap,
    │                               LakeTableGone, LakeMetadataGone, LakeHistoriesDiffer, LakeSchemaBroken,
    │                               ReplacedRowMissing, ForeignRowsFound, RoundTooOld
    ├── Unavailable                 ServerUnavailable, TimedOut, ReadTooFarAhead
    ├── SplitFailed                 a task returned an error that is not one of ours
    ├── FaultInjected               a test asked for it
    └── RemoteError                 a peer sent a code this version does not know

Constructors take facts as keywords and keep them as attributes. `code` is stable: it travels over HTTP, Flight and out
of Spark tasks, and `from_wire` brings the same type back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, dataclass_transform

_LOGIN = re.compile(r"(?<=://)[^/@\s?#]*@")


@dataclass_transform(kw_only_default=True, eq_default=False)
class LakewardError(Exception):
    """The root. `retryable` says whether the same call may succeed later without anybody changing anything."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500
    template: ClassVar[str] = "something failed"

    def __init__(self, **facts: Any) -> None:
        """As a dataclass would have it; making a hundred dataclasses would be a seventh of a command's start."""
        for name in fact_names(type(self)):
            if name in facts:
                setattr(self, name, facts.pop(name))
            elif not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} wants the fact {name}")
        if facts:
            raise TypeError(f"{type(self).__name__} has no fact {', '.join(facts)}")
        super().__init__()

    @property
    def facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in fact_names(type(self))}

    @property
    def message(self) -> str:
        return self.template.format(**self.facts)

    def __str__(self) -> str:
        """The message, and what was noted on its way to the caller."""
        return "; ".join([self.message, *getattr(self, "__notes__", ())])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.facts.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return from_wire, (to_wire(self),)


def to_wire(error: LakewardError) -> dict[str, Any]:
    """The error as plain values: for HTTP bodies, Flight error details and Spark task outcomes. Logins stay here: lakes
    and catalogs put whole addresses into what they say."""
    facts = {k: without_login(v) if isinstance(v, str) else v for k, v in error.facts.items()}
    message = without_login(error.message)
    return {"code": error.code, "message": message, "facts": facts, "retryable": error.retryable}


def without_login(text: str) -> str:
    """The text with user and password taken out of every URI in it."""
    return _LOGIN.sub("", text) if "://" in text else text


def from_wire(body: Mapping[str, Any]) -> LakewardError:
    """The typed error again. Facts that this version does not know are dropped; an unknown code or missing facts become
    a `RemoteError` that keeps the message."""
    cls = _by_code().get(str(body.get("code")))
    facts = body.get("facts")
    if cls is not None and isinstance(facts, Mapping):
        try:
            return cls(**{name: facts[name] for name in fact_names(cls) if name in facts})
        except TypeError:
            pass
    return RemoteError(remote_code=str(body.get("code")), text=str(body.get("message")))


def tree(root: type[LakewardError] = LakewardError) -> Iterator[type[LakewardError]]:
    """Every class of the tree, parents first."""
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


def fact_names(cls: type[LakewardError]) -> tuple[str, ...]:
    """What is annotated in the class and those above it, theirs first, but for class variables."""
    known = dict[str, str]()
    for each in reversed(cls.__mro__):
        if issubclass(each, LakewardError):
            known |= each.__annotations__
    return tuple(name for name, kind in known.items() if not kind.startswith("ClassVar"))


def _by_code() -> dict[str, type[LakewardError]]:
    return {cls.code: cls for cls in tree()}


# ---- input -----------------------------------------------------------------------------------------------------------
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
    template = "table {table}, row {row}, column {column}: {reason}; nothing of this call was stored"
    table: str
    row: int
    column: str
    reason: str

    def at_row(self, row: int) -> InvalidRows:
        """The same of a row in a longer list."""
        return InvalidRows(table=self.table, row=row, column=self.column, reason=self.reason)


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


class SparkUnsupported(InvalidInput):
    code = "spark-unsupported"
    template = "{what} is not supported: {reason}"
    what: str
    reason: str


class JavaNotFound(InvalidInput):
    code = "java-not-found"
    template = "Spark needs Java 17 or newer; looked at {looked_at}; set JAVA_HOME, or `pip install lakeward[jre]`"
    looked_at: str


class UnsafeLake(InvalidInput):
    code = "unsafe-lake"
    template = "lake {lake} cannot be used: {reason}"
    lake: str
    reason: str


# ---- not there, or there already -------------------------------------------------------------------------------------
class NotFound(LakewardError):
    code = "not-found"
    http_status = 404


class TableNotFound(NotFound):
    code = "table-not-found"
    template = "there is no table {table}; `lakeward table list` shows what there is"
    table: str


class SideNotFound(NotFound):
    code = "side-not-found"
    template = "table {table} has no side {side}; it has {sides}"
    table: str
    side: str
    sides: str


class PartitionNotFound(NotFound):
    code = "partition-not-found"
    template = "table {table} has no partition {partition}"
    table: str
    partition: str


class SnapshotGone(NotFound):
    code = "snapshot-gone"
    http_status = 410
    template = "table {table}: snapshot {snapshot} is no longer kept; {advice}"
    table: str
    snapshot: str
    advice: str


class OffsetOutOfRange(NotFound):
    code = "offset-out-of-range"
    http_status = 416
    template = "table {table}, bucket {bucket}: offset {offset} is outside the log [{start}, {end})"
    table: str
    bucket: str
    offset: int
    start: int
    end: int


class PluginNotFound(NotFound):
    code = "plugin-not-found"
    template = "no {kind} plugin is called {name!r}; installed: {installed}"
    kind: str
    name: str
    installed: str


class AlreadyExists(LakewardError):
    code = "already-exists"
    http_status = 409


class TableAlreadyExists(AlreadyExists):
    code = "table-already-exists"
    template = "table {table} exists already"
    table: str


class LakeMismatch(AlreadyExists):
    code = "lake-mismatch"
    template = "lake table {table} exists and does not match: {diff}"
    table: str
    diff: str


class LakeNotEmpty(AlreadyExists):
    code = "lake-not-empty"
    template = (
        "lake table {table} already has snapshots; adopt it on purpose with `lakeward table adopt`, or pick "
        "another name"
    )
    table: str


# ---- refused ---------------------------------------------------------------------------------------------------------
class Refused(LakewardError):
    code = "refused"
    http_status = 403


class Unauthorized(Refused):
    code = "unauthorized"
    http_status = 401
    template = "no valid token was sent for {what}; set LAKEWARD_TOKEN"
    what: str


class Forbidden(Refused):
    code = "forbidden"
    template = "token {token_name!r} has role {role}, and {what} needs {needed}"
    token_name: str
    role: str
    what: str
    needed: str


class ForeignCaller(Refused):
    code = "foreign-caller"
    template = "{header} {value!r} is none of this server's names; if it should be, add it to server.allowed-hosts"
    header: str
    value: str


class IncompatibleVersion(Refused):
    code = "incompatible-version"
    http_status = 426
    template = "{peer} speaks {what} version {theirs}, this side speaks {ours}; upgrade the older one"
    peer: str
    what: str
    theirs: str
    ours: str


class InsecureBinding(Refused):
    code = "insecure-binding"
    template = "binding to {address} without a token is refused; set a token, or bind to 127.0.0.1"
    address: str


# ---- hot store -------------------------------------------------------------------------------------------------------
class HotStoreError(LakewardError):
    code = "hot-store"


class BucketStopped(HotStoreError):
    code = "bucket-stopped"
    http_status = 503
    template = "table {table}, bucket {bucket} takes no {what}: {reason}"
    table: str
    bucket: str
    what: str
    reason: str


class BucketUnavailable(BucketStopped):
    code = "bucket-unavailable"
    retryable = True
    template = "table {table}, bucket {bucket} takes no {what} now: {reason}; it is tried again at the next call"


class CorruptBatch(HotStoreError):
    code = "corrupt-batch"
    template = "{where}: batch at byte {position} is corrupt: {reason}; the file was left alone"
    where: str
    position: int
    reason: str


class OutOfSequence(HotStoreError):
    code = "out-of-sequence"
    http_status = 409
    template = "writer {writer}, bucket {bucket}: sequence {got} came, {expected} was due; start a new writer"
    writer: str
    bucket: str
    got: int
    expected: int


class DiskFull(HotStoreError):
    code = "disk-full"
    http_status = 507
    retryable = True
    template = (
        "{where}: {free_bytes} bytes are free and {reserve_bytes} are kept in reserve; free some space and try again, "
        "nothing of this was stored"
    )
    where: str
    free_bytes: int
    reserve_bytes: int


class QuotaExceeded(HotStoreError):
    code = "quota"
    http_status = 429
    retryable = True
    template = "token {token_name!r} has {used} {what}, at most {limit} are allowed: end some, or try again later"
    token_name: str
    what: str
    used: int
    limit: int


class Overloaded(HotStoreError):
    code = "overloaded"
    http_status = 429
    retryable = True
    template = (
        "{what}: {in_use_bytes} of {limit_bytes} bytes are in use; try again a little later or send smaller batches"
    )
    what: str
    in_use_bytes: int
    limit_bytes: int


class PartitionExpired(HotStoreError):
    code = "partition-expired"
    http_status = 409
    template = "table {table}: partition {partition} has expired and takes no writes"
    table: str
    partition: str


class DataFolderLocked(HotStoreError):
    code = "data-folder-locked"
    template = "data folder {folder} is in use by {holder}; stop that server or name another folder"
    folder: str
    holder: str


class DataFolderUnusable(HotStoreError):
    code = "data-folder-unusable"
    http_status = 503
    retryable = True
    template = (
        "data folder {folder} cannot be used by user {user}: {reason}; give that user the right to write there, or "
        "name another folder"
    )
    folder: str
    user: str
    reason: str


class DataFolderVersion(HotStoreError):
    code = "data-folder-version"
    template = "data folder {folder} has format version {found}, this server knows up to {known}; use a newer Lakeward"
    folder: str
    found: int
    known: int


class UnsafePath(HotStoreError):
    code = "unsafe-path"
    template = "{path} does not lie in {folder}, or a link leads out of it: nothing there was touched"
    path: str
    folder: str


class WritesPaused(HotStoreError):
    code = "writes-paused"
    http_status = 503
    retryable = True
    template = "table {table} takes no writes: {reason}"
    table: str
    reason: str


class SchemaChanged(HotStoreError):
    code = "schema-changed"
    http_status = 409
    retryable = True
    template = (
        "table {table}: batch at offset {offset} has schema {batch_schema}, the round was planned on {planned_schema}"
    )
    table: str
    offset: int
    batch_schema: int
    planned_schema: int


class KvFailed(HotStoreError):
    code = "kv-failed"
    http_status = 503
    retryable = True
    template = (
        "KV in {folder}: {what} failed: {reason}; the log has every row, and KV is mended from it at the next use"
    )
    folder: str
    what: str
    reason: str


class LogTooShort(HotStoreError):
    code = "log-too-short"
    http_status = 409
    template = (
        "table {table}, bucket {bucket}: the lake holds offsets up to {committed}, and the hot log starts at {start}; "
        "the rows between "
        "are in neither: restore the hot store, or accept the gap with `lakeward table resync {table}`"
    )
    table: str
    bucket: str
    committed: int
    start: int


class HotStoreBehind(HotStoreError):
    code = "hot-store-behind"
    http_status = 409
    template = (
        "table {table}, bucket {bucket}: the lake holds offsets up to {committed}, and the hot log ends at {end}; was "
        "the data folder "
        "restored from a backup? Restore a newer one, or run `lakeward table resync {table}`"
    )
    table: str
    bucket: str
    committed: int
    end: int


class LogRewritten(HotStoreError):
    code = "log-rewritten"
    http_status = 409
    template = (
        "table {table}, bucket {bucket}: the record before offset {offset} is not the one that the lake took: the hot "
        "store lost "
        "acknowledged writes and gave their offsets to new ones, which the lake lacks. "
        "`lakeward verify {table} --deep` names the rows; {advice}"
    )
    table: str
    bucket: str
    offset: int
    advice: str


class FlussError(HotStoreError):
    """Fluss answered with an error that has no type of its own here. `fluss_code` is Fluss's number."""

    code = "fluss"
    http_status = 502
    template = "Fluss at {address} refused {what} with error {fluss_code}: {text}"
    address: str
    what: str
    fluss_code: int
    text: str


# ---- coordinator -----------------------------------------------------------------------------------------------------
class CoordinatorError(LakewardError):
    code = "coordinator"
    http_status = 409


class FencedEpoch(CoordinatorError):
    code = "fenced-epoch"
    template = "table {table}: epoch {epoch} is over, the current one is {current}: {reason}"
    table: str
    epoch: int
    current: int
    reason: str


class LeaseLost(CoordinatorError):
    code = "lease-lost"
    template = "table {table}: round {round_id} of job {job} no longer holds the lease: {reason}"
    table: str
    round_id: str
    job: str
    reason: str


class UnknownWork(CoordinatorError):
    code = "unknown-work"
    template = (
        "job {job} was handed {kind} of table {table}, which it cannot do (it knows {known}), and gave it back; "
        "run jobs and server of one version"
    )
    job: str
    kind: str
    table: str
    known: str


class Superseded(CoordinatorError):
    code = "superseded"
    template = "job {job}: instance {instance} was replaced by {by}; this instance must exit"
    job: str
    instance: str
    by: str


class LedgerGap(CoordinatorError):
    code = "ledger-gap"
    template = (
        "table {table}, bucket {bucket}: range [{start}, {stop}) does not begin where the ledger ends ({ledger_end})"
    )
    table: str
    bucket: str
    start: int
    stop: int
    ledger_end: int


class IllegalTransition(CoordinatorError):
    code = "illegal-transition"
    template = "table {table} cannot go from {source} to {target}"
    table: str
    source: str
    target: str


class TableBusy(CoordinatorError):
    code = "table-busy"
    retryable = True
    template = "table {table}: {reason}"
    table: str
    reason: str


# ---- lake ------------------------------------------------------------------------------------------------------------
class CommitError(LakewardError):
    code = "commit"
    http_status = 409


class CommitConflict(CommitError):
    """The lake is not as the commit demanded. `lost` is true when another round of ours moved offsets or token."""

    code = "commit-conflict"
    template = "table {table}, round {round_id}: {reason}"
    table: str
    round_id: str
    reason: str
    lost: bool = False


class CommitUnknown(CommitError):
    code = "commit-unknown"
    template = "table {table}, round {round_id}: the lake did not say whether the commit took place: {reason}"
    table: str
    round_id: str
    reason: str


class LakeError(LakewardError):
    code = "lake"
    http_status = 502


class LakeUnavailable(LakeError):
    code = "lake-unavailable"
    retryable = True
    template = "lake {lake} does not answer ({what}): {reason}; the hot store keeps all data meanwhile"
    lake: str
    what: str
    reason: str


class LakeRolledBack(LakeError):
    code = "lake-rolled-back"
    template = (
        "table {table}: someone moved main to snapshot {head}, and our newest snapshot {ours} is not among its "
        "ancestors; "
        "either move main back, or accept the lake as it is with `lakeward table resync {table}`"
    )
    table: str
    head: str
    ours: str


class LakeBehind(LakeError):
    code = "lake-behind"
    template = (
        "table {table}, bucket {bucket}: the lake holds offsets up to {lake_offset}, the coordinator recorded "
        "{committed}; "
        "restore the lake, or rewrite what is missing with `lakeward table resync {table}`; "
        "for a table of a Fluss cluster start the job once with LAKEWARD_FLUSS_ACCEPT={table}"
    )
    table: str
    bucket: str
    lake_offset: int
    committed: int


class LakeForeign(LakeError):
    code = "lake-foreign"
    template = (
        "lake table {table} belongs to table id {found}, not to {expected}; adopt it with `lakeward table "
        "adopt {table}`, or move it away"
    )
    table: str
    found: str
    expected: str


class LakeTampered(LakeError):
    code = "lake-tampered"
    template = (
        "table {table}, snapshot {snapshot}: {what} cannot be read ({reason}); restore it, or run `lakeward "
        "table resync {table}`"
    )
    table: str
    snapshot: str
    what: str
    reason: str


class LakeOverlap(LakeError):
    code = "lake-overlap"
    template = (
        "table {table}, bucket {bucket}: snapshot {snapshot} of another tiering job holds rows from offset {offset} "
        "on, which the lake "
        "had up to {committed} since snapshot {ours}: a job that was away for longer than its lease came back and "
        "committed. "
        "Move main back to snapshot {ours}; then the table goes on by itself"
    )
    table: str
    bucket: str
    snapshot: str
    ours: str
    offset: int
    committed: int


class LakeTableGone(LakeError):
    code = "lake-table-gone"
    template = (
        "lake table {table} is no longer in the catalog; restore it, or disable and enable the lake on this table"
    )
    table: str


class LakeMetadataGone(LakeError):
    code = "lake-metadata-gone"
    template = (
        "lake table {table}: the metadata file that the catalog names is gone. If the server's own catalog came back "
        "from an older "
        "backup, start it with `lakeward server --restored`; else put the file back: {file}"
    )
    table: str
    file: str


class LakeHistoriesDiffer(LakeError):
    code = "lake-histories-differ"
    template = (
        "lake table {table}: of two metadata files neither follows from the other, {one} and {other}, so the newest "
        "is not known and "
        "nothing was moved. Move the wrong one, and those that only its metadata-log names, out of the folder; then "
        "start with --restored"
    )
    table: str
    one: str
    other: str


class LakeSchemaBroken(LakeError):
    code = "lake-schema-broken"
    template = "lake table {table} no longer fits: {diff}; `lakeward table reconcile-schema {table}` undoes it"
    table: str
    diff: str


class ReplacedRowMissing(LakeError):
    code = "replaced-row-missing"
    template = (
        "table {table}, bucket {bucket}: {count} replaced rows are in no lake file (first offset {offset}); "
        "run `lakeward verify {table}`, then `lakeward table resync {table}`"
    )
    table: str
    bucket: str
    offset: int
    count: int


class ForeignRowsFound(LakeError):
    code = "foreign-rows-found"
    template = (
        "table {table}: another engine inserted {rows} rows (snapshots {snapshots}; the first in {file}); "
        "rows come through Lakeward alone, or a key is there twice. Take them out: `lakeward table resync {table}`, "
        "or let every round do so: `lakeward table alter {table} --set table.datalake.foreign-rows=remove`"
    )
    table: str
    snapshots: str
    rows: int
    file: str


class RoundTooOld(LakeError):
    code = "round-too-old"
    template = (
        "table {table}, round {round_id} is {age_s} s old, more than tiering.round.max-age ({max_age_s} s); it "
        "will not commit"
    )
    table: str
    round_id: str
    age_s: int
    max_age_s: int


# ---- the rest --------------------------------------------------------------------------------------------------------
class Unavailable(LakewardError):
    code = "unavailable"
    retryable = True
    http_status = 503


class ServerUnavailable(Unavailable):
    code = "server-unavailable"
    template = (
        "no answer from {address} to {what}: {reason}; is the server running? (`lakeward server` starts it, "
        "LAKEWARD_SERVER names another)"
    )
    address: str
    reason: str
    what: str = "a call"


class TimedOut(Unavailable):
    code = "timed-out"
    http_status = 504
    template = "{what} did not end within {limit_s} s: {state}"
    what: str
    limit_s: float
    state: str


class ReadTooFarAhead(Unavailable):
    code = "read-too-far-ahead"
    http_status = 409
    template = "table {table}, bucket {bucket}: offset {wanted} was asked for and the log ends at {end}"
    table: str
    bucket: str
    wanted: int
    end: int


class SplitFailed(LakewardError):
    """An error that is not one of ours came out of a split; its text is kept."""

    code = "split-failed"
    template = "table {table}, split {split}: {kind}: {text}"
    table: str
    split: str
    kind: str
    text: str


class FaultInjected(LakewardError):
    code = "fault-injected"
    template = "fault injected at {point}"
    point: str


class RemoteError(LakewardError):
    code = "remote"
    http_status = 502
    template = "the peer answered {remote_code}: {text}"
    remote_code: str
    text: str
