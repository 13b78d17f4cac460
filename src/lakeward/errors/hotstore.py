# SPDX-License-Identifier: Apache-2.0
"""Errors of the hot store and its data folder."""

from __future__ import annotations

from lakeward.errors.root import LakewardError


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


class WriterForgotten(HotStoreError):
    """Sent again after so long that the server cannot tell any more whether it has it."""

    code = "writer-forgotten"
    http_status = 409
    template = (
        "writer {writer}, bucket {bucket}: a put that was first sent {age_s} s ago came again, and writers of that "
        "time are forgotten: whether it is stored is unknown; look for its rows before it is sent by a new writer"
    )
    writer: str
    bucket: str
    age_s: int


class DiskFull(HotStoreError):
    code = "disk-full"
    http_status = 507
    retryable = True
    template = "{where}: {room}; free some space and try again, nothing of this was stored"
    where: str
    free_bytes: int
    reserve_bytes: int
    """0: the system refused a write, whatever is free or kept in reserve."""

    @property
    def message(self) -> str:
        kept = f" and {self.reserve_bytes:,} are kept in reserve" if self.reserve_bytes else ""
        return self.template.format(**self.facts, room=f"{self.free_bytes:,} bytes are free{kept}")


class QuotaExceeded(HotStoreError):
    code = "quota"
    http_status = 429
    retryable = True
    template = "token {token_name!r} has {used} {what}, at most {limit} are allowed: end some, or try again later"
    token_name: str
    what: str
    used: int
    limit: int


class LiveQuotaExceeded(HotStoreError):
    code = "live-quota"
    http_status = 429
    retryable = True
    template = (
        "table {table}: loads of token {token_name!r} have filled {used_bytes:,} bytes with tail files, at most "
        "{limit_bytes:,} are allowed (`live.quota-bytes`); the files go `live.keep` after the last answer that named "
        "them: load it again later, or read it in warehouse `default`, as of the last round"
    )
    table: str
    token_name: str
    used_bytes: int
    limit_bytes: int


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


class TableLoading(HotStoreError):
    """The table's existing rows are still being loaded into the hot store."""

    code = "table-loading"
    http_status = 409
    template = (
        "table {table} is being adopted, {rows:,} of {of:,} rows are loaded: it can be read and written once all are; "
        "the command that adopts it, given again, shows how far it is, and dropping the table ends it"
    )
    table: str
    rows: int
    of: int


class LoadLost(HotStoreError):
    """The load of a table that is adopted was lost, for example in a restored folder."""

    code = "load-lost"
    retryable = True
    template = "table {table}: what was loaded of it is not there any more ({reason}); it is loaded anew"
    table: str
    reason: str


class WritesPaused(HotStoreError):
    """An operator has to act first, so clients report it at once and do not retry."""

    code = "writes-paused"
    http_status = 503
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
