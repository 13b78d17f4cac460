# SPDX-License-Identifier: Apache-2.0
"""Errors of lakes and of commits to them."""

from __future__ import annotations

from lakeward.errors.root import LakewardError


class CommitError(LakewardError):
    code = "commit"
    http_status = 409


class CommitConflict(CommitError):
    """The lake is not in the state that the commit requires. `lost` is true when another of our rounds moved offsets or
    token."""

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
        "lake table {table} belongs to table id {found}, not to {expected}: rename it in its lake, then `lakeward "
        "table restore-lake {table} --anew` makes this table's own"
    )
    table: str
    found: str
    expected: str


class LakeTampered(LakeError):
    code = "lake-tampered"
    template = (
        "table {table}, snapshot {snapshot}: {what} cannot be read ({reason}); restore it, or write the lake table "
        "again with `lakeward table rebuild-lake {table}`"
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
        "lake table {table} is no longer in the catalog; `lakeward table restore-lake {table}` puts it back from the "
        "files that are left, and with `--anew` makes an empty one where none are"
    )
    table: str


class LakeMetadataGone(LakeError):
    code = "lake-metadata-gone"
    template = (
        "lake table {table}: its metadata file is gone; `lakeward table restore-lake {table}` takes the newest file "
        "that is left, and with `--anew` makes an empty table where none is. If the server's own catalog came back "
        "from an older backup, a start with `lakeward server --restored` or `lakeward up --restored` does so for all "
        "tables. The file: {file}"
    )
    table: str
    file: str


class LakeMetadataTooLarge(LakeError):
    code = "lake-metadata-too-large"
    http_status = 409
    template = (
        "lake metadata file {file} has more than {limit} bytes of JSON, packed or unpacked; let the engine that writes "
        "the table expire snapshots, or raise the lake's option {option}"
    )
    file: str
    limit: int
    option: str


class LakePathRefused(LakeError):
    code = "lake-path-refused"
    http_status = 409
    template = (
        "lake table {table}: its metadata names {path}, which is not below the table's own location {location}, or "
        "is no regular file; nothing there was opened or deleted. If that file belongs to the table, name its folder "
        "in the lake's option allowed-locations"
    )
    table: str
    path: str
    location: str


class LakeFileBroken(LakeError):
    code = "lake-file-broken"
    template = (
        "lake {lake}, table {table}: {what} failed ({reason}). A file of the lake table is damaged, or of a form that "
        "this version does not know; put it back from a copy, or report this message if nobody changed the files"
    )
    lake: str
    table: str
    what: str
    reason: str


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


class LakeFolderMoved(LakeError):
    code = "lake-folder-moved"
    template = (
        "folder {old} was moved to {new}: Iceberg tables name their files by whole paths, {tables} of this server in "
        "{old}, for every engine that reads them. Move it back, or let the old path lead to the new one: {command}"
    )
    old: str
    new: str
    tables: int
    command: str


class LakeSchemaBroken(LakeError):
    code = "lake-schema-broken"
    template = (
        "lake table {table} no longer fits: {diff}; `lakeward table reconcile-schema {table}` undoes it, or says "
        "what does"
    )
    table: str
    diff: str


class LakeUnreadable(LakeError):
    code = "lake-unreadable"
    template = (
        "lake {lake} has rows of table {table} that the format's library cannot read: {reason}; reads that name the "
        "columns and leave out the one it cannot read go on. Please report this message"
    )
    lake: str
    table: str
    reason: str


class RowNotEncoded(LakeError):
    code = "row-not-encoded"
    template = (
        "table {table}, column {column}, bucket {bucket}, offset {offset}: the value cannot be written to a file of "
        "lake {lake}: {reason}; nothing was committed and the hot store keeps the row. In a primary-key table (other "
        "than on Paimon), write the row again with another value or delete it: the next round goes on. Please report "
        "this message"
    )
    lake: str
    table: str
    column: str
    bucket: str
    offset: str
    """First and last offset of the batch where the row was not found."""

    reason: str


class ReplacedRowMissing(LakeError):
    code = "replaced-row-missing"
    template = (
        "table {table}, bucket {bucket}: replaced rows that are in no lake file: {count}, the first at offset "
        "{offset}; run `lakeward verify {table}`, then `lakeward table resync {table}`"
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


class LakeHistoryGone(LakeError):
    code = "lake-history-gone"
    template = (
        "table {table}: another engine added files (snapshots {snapshots}) and removed our newest snapshot {ours}, so "
        "that its rows cannot be told from ours; compare them: `lakeward table resync {table}`"
    )
    table: str
    ours: str
    snapshots: str


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
