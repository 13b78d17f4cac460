# SPDX-License-Identifier: Apache-2.0
"""Reads one Iceberg table: where it stands, its snapshots, its files with their deletes, its live rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lakeward.errors import LakeError, LakeTampered, LakeUnavailable, SnapshotGone
from lakeward.lake.iceberg.commit.ground import CommitGround
from lakeward.lake.iceberg.commit.liverows import count_live_rows
from lakeward.lake.iceberg.datafile.offsetcache import find_cache, load_column
from lakeward.lake.iceberg.meta.ancestry import Reconciled, reconcile, walk
from lakeward.lake.iceberg.meta.connection import IcebergConnection
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.foreign import find_adopted
from lakeward.lake.iceberg.meta.layout import is_clean
from lakeward.lake.iceberg.meta.ownpaths import check_path
from lakeward.lake.iceberg.meta.summary import SummaryReader, summary_of
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.scan import Scan, same_rows
from lakeward.lake.iceberg.scan.snapshotfiles import PlannedFile, plan_files
from lakeward.lake.kept import Kept
from lakeward.model.bucket import Bucket
from lakeward.model.ids import RoundId, SnapshotId
from lakeward.model.offsets import OffsetMap
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.schema import OFFSET
from lakeward.model.table import TableInfo
from lakeward.spi.flussoffsets import find_partitions
from lakeward.spi.lake.reader import LakeReader
from lakeward.spi.lakefile import AdoptedRows, LakeFile, LakeSnapshot, LakeTotals
from lakeward.spi.snapshotkeys import ROWS_KEY, TABLE_ID_KEY, is_of

_DELETED: Kept[OffsetSet] = Kept(4_000_000, len)
"""Deleted offsets per file and its deletes: 32 MB of them."""


class IcebergLakeReader(LakeReader):
    def __init__(self, connection: IcebergConnection, table: TableInfo, loaded: Table | None = None) -> None:
        """`loaded`: answers come from this table, and the catalog is not asked again."""
        self._connection, self._table, self._loaded = connection, table, loaded
        self._plans: dict[int, list[PlannedFile]] = {}

    def load(self) -> Table:
        return self._loaded if self._loaded is not None else self._connection.load_planned(self._table)

    def pinned(self) -> IcebergLakeReader:
        return IcebergLakeReader(self._connection, self._table, self.load())

    def summaries(self, table: Table) -> SummaryReader:
        return SummaryReader(
            str(self._table.path), self._table.table_id, table.io, partitions=find_partitions(self._table.descriptor)
        )

    def reconcile(self, table: Table, *, as_is: bool = False) -> Reconciled:
        """Where a loaded table stands. Raises as `load_base`."""
        with lake_errors(str(self._table.path), "reconcile"):
            same = lambda head, tagged: same_rows(table, self._table, head, tagged)  # noqa: E731
            return reconcile(table.metadata, self.summaries(table), same, as_is=as_is)

    def load_ground(self, *, as_is: bool = False) -> CommitGround:
        """The table now. Raises as `load_base`."""
        table = self.load()
        return CommitGround(table, self.reconcile(table, as_is=as_is))

    def load_base(self) -> LakeBase:
        return self.load_ground().base

    def load_base_as_is(self) -> LakeBase:
        return self.load_ground(as_is=True).base

    def snapshots(self) -> Sequence[LakeSnapshot]:
        table = self.load()
        summaries = self.summaries(table)
        by_age = sorted(table.metadata.snapshots, key=lambda s: (s.sequence_number or 0, s.timestamp_ms))
        return [summaries.snapshot(s, summaries.offsets(s) if TABLE_ID_KEY in summary_of(s) else None) for s in by_age]

    def load_snapshot(self, snapshot_id: SnapshotId | None = None) -> LakeSnapshot | None:
        table = self.load()
        if snapshot_id is None and table.metadata.current_snapshot_id is None:
            return None
        snapshot = self._snapshot(table.metadata, snapshot_id)
        summaries = self.summaries(table)
        return summaries.snapshot(snapshot, self._offsets_at(table, summaries, snapshot))

    def _offsets_at(self, table: Table, summaries: SummaryReader, snapshot: Snapshot) -> OffsetMap | None:
        for ancestor in walk(table.metadata, snapshot.snapshot_id).chain:
            if summaries.owner(ancestor) == self._table.table_id:
                return summaries.offsets(ancestor)
        return self._offsets_of_cut_head(table) if snapshot.snapshot_id == table.metadata.current_snapshot_id else None

    def _offsets_of_cut_head(self, table: Table) -> OffsetMap | None:
        """Others rewrote the table and expired what lay between: our tag still says how far its rows go, as it does for
        a round.
        """
        try:
            reconciled = self.reconcile(table)
        except LakeError:
            return None
        return None if reconciled.newest is None else reconciled.base.offsets

    def _snapshot(self, metadata: TableMetadata, snapshot_id: SnapshotId | None) -> Snapshot:
        wanted = metadata.current_snapshot_id if snapshot_id is None else int(snapshot_id)
        snapshot = None if wanted is None else metadata.snapshot_by_id(wanted)
        if snapshot is None:
            advice = "plan the read again on a newer snapshot"
            raise SnapshotGone(table=str(self._table.path), snapshot=str(snapshot_id), advice=advice)
        return snapshot

    def find_round(self, round_id: RoundId) -> LakeSnapshot | None:
        """The oldest retained snapshot of this round, or rewrite."""
        table = self.load()
        summaries = self.summaries(table)
        of_round = [s for s in table.metadata.snapshots if is_of(summary_of(s), round_id)]
        mine = [s for s in of_round if summary_of(s).get(TABLE_ID_KEY) == self._table.table_id]
        if not mine:
            return None
        first = min(mine, key=lambda s: s.sequence_number or 0)
        return summaries.snapshot(first, summaries.offsets(first))

    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        table = self.load()
        snapshot = self._snapshot(table.metadata, snapshot_id)
        with lake_errors(str(self._table.path), "list files of"):
            files = [f.describe() for f in self._plan(table, snapshot) if bucket is None or f.bucket == bucket]
        for path in {path for file in files for path in (file.path, *(d.path for d in file.deletes))}:
            check_path(table.io, path)  # an engine opens them by itself
        return files

    def _plan(self, table: Table, snapshot: Snapshot) -> list[PlannedFile]:
        """A pinned reader keeps what it planned: a check of 45 buckets would match files and deletes 45 times."""
        planned = self._plans.get(snapshot.snapshot_id)
        if planned is None:
            planned = plan_files(table.metadata, table.io, snapshot, self._table.descriptor.partition_keys)
            if self._loaded is not None:
                self._plans[snapshot.snapshot_id] = planned
        return planned

    def scan(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        return (batch for _, batch in self.scan_buckets(snapshot_id, columns=columns, filter=filter, buckets=buckets))

    def scan_buckets(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket | None] | None = None,
        without: Mapping[Bucket, OffsetSet] | None = None,
    ) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        table = self.load()
        snapshot = self._snapshot(table.metadata, snapshot_id)
        names = self._table.schema.names if columns is None else tuple(columns)
        scan = Scan(table, self._table, names, filter, without)
        wanted = None if buckets is None else set(buckets)
        with _missing_files(str(self._table.path), snapshot_id), lake_errors(str(self._table.path), "scan"):
            yield from scan.batches(self._plan(table, snapshot), wanted)

    def scan_files(
        self, snapshot_id: SnapshotId, *, columns: Sequence[str], first: int = 0
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """By the number of the commit that a file came with, then by its name."""
        table = self.load()
        snapshot = self._snapshot(table.metadata, snapshot_id)
        scan = Scan(table, self._table, tuple(columns), None)
        with _missing_files(str(self._table.path), snapshot_id), lake_errors(str(self._table.path), "scan"):
            planned = sorted(
                self._plan(table, snapshot), key=lambda p: (p.indexed.entry.sequence_number or 0, p.file.file_path)
            )
            for number, file in enumerate(planned[first:], first):
                yield from ((number, batch) for _, batch in scan.batches([file], None))

    @property
    def has_offsets(self) -> bool:
        return not is_clean(self.load().metadata.schema())

    @property
    def adopted(self) -> AdoptedRows | None:
        return find_adopted(str(self._table.path), self.load().metadata)

    def deleted_offsets(self, file: LakeFile) -> OffsetSet | None:
        """Kept per file and set of deletes: neither ever changes."""
        table = self.load()
        if is_clean(table.metadata.schema()):
            return None
        key = "\n".join((file.path, *sorted(f"{d.path}@{d.content_offset}" for d in file.deletes)))
        with lake_errors(str(self._table.path), "read deletes of"):
            return _DELETED.load(key, lambda: self._deleted_offsets(table, file))

    def deleted_rows(self, file: LakeFile) -> Offsets:
        table = self.load()
        with lake_errors(str(self._table.path), "read deletes of"):
            return DeleteFilter(table.io, table.metadata.schema()).positions(file)

    def _deleted_offsets(self, table: Table, file: LakeFile) -> OffsetSet:
        positions = DeleteFilter(table.io, table.metadata.schema()).positions(file)
        held = find_cache(table.io, file.path, file.record_count)
        offset_id = table.metadata.schema().find_field(OFFSET).field_id
        values = held.values if held is not None else load_column(table.io, file.path, offset_id)
        return OffsetSet(values[positions])

    def field_ids(self) -> Mapping[str, int]:
        return {f.name: f.field_id for f in self.load().metadata.schema().fields}

    def totals(self) -> LakeTotals:
        """Of a head that others made the rows are counted: their figures do not add up."""
        table = self.load()
        totals, head = totals_of(table.metadata), table.metadata.current_snapshot()
        if head is None or TABLE_ID_KEY in summary_of(head):
            return totals
        with lake_errors(str(self._table.path), "count the rows of"):
            rows = count_live_rows(table, head, self._table.descriptor.partition_keys)
        return totals if rows is None else replace(totals, rows=rows, is_exact=True)


def totals_of(metadata: TableMetadata) -> LakeTotals:
    """Figures of the head."""
    head = metadata.current_snapshot()
    summary = {} if head is None else summary_of(head)
    total, counted = partial(_total, summary), summary.get(ROWS_KEY)
    return LakeTotals(
        data_files=total("data-files"),
        delete_files=total("delete-files"),
        rows=max(0, total("records") - total("position-deletes")) if counted is None else int(counted),
        bytes=total("files-size"),
        snapshots=len(metadata.snapshots),
        is_exact=counted is not None or total("equality-deletes") == 0,
    )


@contextmanager
def _missing_files(table: str, snapshot: SnapshotId) -> Iterator[None]:
    """A file that is not there does not come back by itself: that is no lake that does not answer."""
    try:
        yield
    except LakeUnavailable as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        reason = f"{error.reason}; if another engine expired the snapshot in the meantime, read again"
        raise LakeTampered(table=table, snapshot=snapshot, what="a data file", reason=reason) from error


def _total(summary: dict[str, str], key: str) -> int:
    return int(summary.get(f"total-{key}", "0"))
