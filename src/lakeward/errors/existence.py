# SPDX-License-Identifier: Apache-2.0
"""Not there, or there already."""

from __future__ import annotations

from lakeward.errors.root import LakewardError


class NotFound(LakewardError):
    code = "not-found"
    http_status = 404


class TableNotFound(NotFound):
    code = "table-not-found"
    template = "there is no table {table}; `lakeward table list` shows what there is"
    table: str


class FlussTableNotFound(TableNotFound):
    code = "fluss-table-not-found"
    template = "there is no table {table} in Fluss; `lakeward status --fluss {address}` shows its lake tables"
    address: str


class SideNotFound(NotFound):
    code = "side-not-found"
    template = "table {table} has no side {side}; it has {sides}"
    table: str
    side: str
    sides: str


class LakeNotFound(NotFound):
    code = "lake-not-found"
    template = "no lake is called {lake!r}; this server has {lakes}"
    lake: str
    lakes: str


class CutNotFound(NotFound):
    code = "cut-not-found"
    template = "there is no cut {cut}; `lakeward cut list` shows what there is"
    cut: str


class SourceNotFound(NotFound):
    code = "source-not-found"
    template = "there is no source {source}; `lakeward source list` shows what there is"
    source: str


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

    @classmethod
    def before_tag(cls, *, table: str, snapshot: str, tag: str) -> SnapshotGone:
        advice = f"another engine expired it before it could be named {tag}"
        return cls(table=table, snapshot=snapshot, advice=advice)


class OffsetOutOfRange(NotFound):
    code = "offset-out-of-range"
    http_status = 416
    template = "table {table}, bucket {bucket}: offset {offset} is outside the log [{start}, {end})"
    table: str
    bucket: str
    offset: int
    start: int
    end: int


class HistoryGone(NotFound):
    code = "history-gone"
    http_status = 410
    template = (
        "table {table}, bucket {bucket}: changes from {since} on are no longer kept; the earliest that is kept is "
        "offset {earliest}, of {moment}. table.datalake.changelog keeps all that come from now on in a lake"
    )
    table: str
    bucket: str
    since: str
    earliest: int
    moment: str


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


class SourceExists(AlreadyExists):
    code = "source-exists"
    template = (
        "a source {source} exists already, with another kind or configuration; choose another name, or drop it with "
        "`lakeward source drop {source}`"
    )
    source: str


class CutScheduleNotFound(NotFound):
    code = "cut-schedule-not-found"
    template = "there is no cut schedule {schedule}; `lakeward cut list` names them"
    schedule: str


class CutExists(AlreadyExists):
    code = "cut-exists"
    template = "a cut {cut} exists already; choose another name, or drop it with `lakeward cut drop {cut}`"
    cut: str


class LakeMismatch(AlreadyExists):
    code = "lake-mismatch"
    template = "lake table {table} exists and does not match: {diff}"
    table: str
    diff: str


class LakeNotEmpty(AlreadyExists):
    code = "lake-not-empty"
    template = (
        "lake table {table} has rows of an earlier table of that name; `lakeward table drop {table} --with-lake` "
        "removes it, `client.create_table(..., adopt=True)` with the earlier columns goes on with it"
    )
    table: str
