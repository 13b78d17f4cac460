# SPDX-License-Identifier: Apache-2.0
"""Contents of a lake table as its plugin reports them: snapshots, data files with their deletes, figures, files in
storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeward.model import Bucket, OffsetMap, OffsetRange, RoundId, SnapshotId, TableId
from lakeward.protocol.heartbeat import LeasedAnswer


@dataclass(frozen=True, kw_only=True)
class LakeSnapshot:
    """A snapshot that we wrote, as `find` and `snapshots` report it."""

    snapshot_id: SnapshotId
    parent_id: SnapshotId | None
    committed_at_ms: int
    operation: str
    round_id: RoundId | None
    offsets: OffsetMap | None
    epoch: int = 0
    job: str = ""
    fence: int = 0
    generation: int = 0
    table_id: TableId | None = None
    lake_rows: int | None = None
    totals: LakeTotals | None = None
    """Set by a commit whose answer contains it, so that the lake need not be asked again."""

    sequence: int = 0
    """Grows with each snapshot of the table: a data file is younger than a delete with a lower number."""

    rewrite_id: RoundId | None = None
    """The rewrite that made it; `round_id` is then copied from the round before."""

    summary: Mapping[str, str] = field(default_factory=dict)
    leased: LeasedAnswer | None = None
    """The answer to a leased commit."""


@dataclass(frozen=True, kw_only=True)
class LakeDelete:
    """A delete file that applies to a data file. `content`: positions, equality or vector."""

    path: str
    content: str
    record_count: int
    sequence: int = 0
    equality_columns: tuple[str, ...] = ()
    content_offset: int | None = None
    content_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class LakeFile:
    """A data file of a snapshot with what deletes rows from it. `offsets` bounds its `__offset` column, where known."""

    path: str
    bucket: Bucket | None
    record_count: int
    size_bytes: int
    offsets: OffsetRange | None
    sequence: int = 0
    deletes: tuple[LakeDelete, ...] = ()
    first_row_id: int | None = None
    """Row id of its first row, in formats that number rows; otherwise, or before that, None."""

    partition: Mapping[str, str] = field(default_factory=dict)
    is_reader_needed: bool = False
    """Only `LakeReader.scan` shows its rows as they are: no engine may scan it by itself."""

    is_merged: bool = False
    """Readers merge it by key with the other files of its bucket."""


@dataclass(frozen=True, kw_only=True)
class LakeTotals:
    """Figures of a snapshot for metrics."""

    data_files: int
    delete_files: int
    rows: int
    bytes: int
    snapshots: int
    is_exact: bool = True
    """False: `rows` is an upper bound. Rows that are deleted or replaced by key are counted until files are merged."""


@dataclass(frozen=True, kw_only=True)
class AdoptedRows:
    """Rows from before the table was adopted, which have no address in a log. `sequence`: of the newest snapshot at
    that time; files that are no younger have these rows, and files that other engines rewrote from them."""

    snapshot_id: SnapshotId | None
    sequence: int
    rows: int
    buckets: int | None = None
    """Number of buckets of a PK table, whose rows are in the hot store as well. If it is one, files that do not state
    their bucket belong to it."""


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file as listed in the lake's storage."""

    path: str
    size_bytes: int
    modified_at_ms: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Expired:
    """Snapshots that the table no longer has and whose files are deleted."""

    snapshots: tuple[SnapshotId, ...] = ()
    bytes: int = 0
