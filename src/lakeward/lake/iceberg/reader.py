# SPDX-License-Identifier: Apache-2.0
"""Reads one Iceberg table: its base, its snapshots, its files with their deletes, its live rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakeward.errors import LakeTampered, LakeUnavailable
from lakeward.lake.core.reader import CoreReader
from lakeward.lake.iceberg.commit.ground import IcebergGround, count_live_rows
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.datafile.offsetcache import find_cache, load_column
from lakeward.lake.iceberg.files import open_table
from lakeward.lake.iceberg.log import IcebergSnapshotLog
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.foreign import find_adopted
from lakeward.lake.iceberg.meta.ownpaths import check_path
from lakeward.lake.iceberg.meta.summary import summary_of, totals_of
from lakeward.lake.iceberg.meta.types import is_clean
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.scan import Scan
from lakeward.lake.iceberg.scan.snapshotfiles import PlannedFile, plan_files
from lakeward.lake.kept import Kept
from lakeward.model import OFFSET, Bucket, Offsets, OffsetSet, SnapshotId, TableInfo
from lakeward.spi import TABLE_ID_KEY, AdoptedRows, LakeFile, LakeTotals

_DELETED: Kept[OffsetSet] = Kept(4_000_000, len)
"""Deleted offsets per file and its deletes: at most 32 MB."""


class IcebergLakeReader(CoreReader[IcebergGround]):
    _log: IcebergSnapshotLog

    def __init__(self, connection: IcebergConnection, table: TableInfo, log: IcebergSnapshotLog | None = None) -> None:
        log = log or IcebergSnapshotLog(connection, table)
        super().__init__(open_table(connection, log, table))
        self._connection = connection
        self._plans: dict[int, list[PlannedFile]] = {}

    def load(self) -> Table:
        return self._log.load().table

    def pinned(self) -> IcebergLakeReader:
        """Returns a reader that answers from the table as loaded now, without asking the catalog again."""
        return pinned_reader(self._connection, self._info, self.load())

    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        table, snapshot = self._at(snapshot_id)
        with lake_errors(str(self._info.path), "list files of"):
            files = [f.describe() for f in self._plan(table, snapshot) if bucket is None or f.bucket == bucket]
        for path in {path for file in files for path in (file.path, *(d.path for d in file.deletes))}:
            check_path(table.io, path)  # engines open them directly
        return files

    def _at(self, snapshot_id: SnapshotId) -> tuple[Table, Snapshot]:
        ground = self._log.load()
        return ground.table, self._log.find_snapshot(ground, snapshot_id)

    def _plan(self, table: Table, snapshot: Snapshot) -> list[PlannedFile]:
        """Plans the files of a snapshot. A pinned reader caches the plan: a check of 45 buckets would match files and
        deletes 45 times."""
        planned = self._plans.get(snapshot.snapshot_id)
        if planned is None:
            planned = plan_files(table.metadata, table.io, snapshot, self._info.descriptor.partition_keys)
            if self._log.is_pinned:
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
        table, snapshot = self._at(snapshot_id)
        names = self._info.schema.names if columns is None else tuple(columns)
        scan = Scan(table, self._info, names, filter, without)
        requested = None if buckets is None else set(buckets)
        with _missing_files(str(self._info.path), snapshot_id), lake_errors(str(self._info.path), "scan"):
            yield from scan.batches(self._plan(table, snapshot), requested)

    def scan_files(
        self, snapshot_id: SnapshotId, *, columns: Sequence[str], first: int = 0
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Sorts files by the number of the commit that added them, then by name."""
        table, snapshot = self._at(snapshot_id)
        scan = Scan(table, self._info, tuple(columns), None)
        with _missing_files(str(self._info.path), snapshot_id), lake_errors(str(self._info.path), "scan"):
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
        return find_adopted(str(self._info.path), self.load().metadata)

    def deleted_offsets(self, file: LakeFile) -> OffsetSet | None:
        """Cached per file and set of deletes: neither ever changes."""
        table = self.load()
        if is_clean(table.metadata.schema()):
            return None
        key = "\n".join((file.path, *sorted(f"{d.path}@{d.content_offset}" for d in file.deletes)))
        with lake_errors(str(self._info.path), "read deletes of"):
            return _DELETED.load(key, lambda: self._deleted_offsets(table, file))

    def deleted_rows(self, file: LakeFile) -> Offsets:
        table = self.load()
        with lake_errors(str(self._info.path), "read deletes of"):
            return DeleteFilter(table.io, table.metadata.schema()).positions(file)

    def row_offsets(self, file: LakeFile) -> Offsets | None:
        table = self.load()
        if is_clean(table.metadata.schema()):
            return None
        with lake_errors(str(self._info.path), "read a file of"):
            return _load_offsets(table, file)

    def _deleted_offsets(self, table: Table, file: LakeFile) -> OffsetSet:
        positions = DeleteFilter(table.io, table.metadata.schema()).positions(file)
        return OffsetSet(_load_offsets(table, file)[positions])

    def field_ids(self) -> Mapping[str, int]:
        return {f.name: f.field_id for f in self.load().metadata.schema().fields}

    def totals(self) -> LakeTotals:
        """Figures of the head. After a foreign commit the rows are counted, as its figures may be wrong."""
        table = self.load()
        totals, head = totals_of(table.metadata), table.metadata.current_snapshot()
        if head is None or TABLE_ID_KEY in summary_of(head):
            return totals
        with lake_errors(str(self._info.path), "count the rows of"):
            rows = count_live_rows(table, head, self._info.descriptor.partition_keys)
        return totals if rows is None else replace(totals, rows=rows, is_exact=True)


def pinned_reader(connection: IcebergConnection, info: TableInfo, table: Table) -> IcebergLakeReader:
    return IcebergLakeReader(connection, info, IcebergSnapshotLog(connection, info, table))


@contextmanager
def _missing_files(table: str, snapshot: SnapshotId) -> Iterator[None]:
    """Translates errors about missing files, which are not temporary, unlike a lake that does not answer."""
    try:
        yield
    except LakeUnavailable as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        reason = f"{error.reason}; if another engine expired the snapshot in the meantime, read again"
        raise LakeTampered(table=table, snapshot=snapshot, what="a data file", reason=reason) from error


def _load_offsets(table: Table, file: LakeFile) -> Offsets:
    held = find_cache(table.io, file.path, file.record_count)
    offset_id = table.metadata.schema().find_field(OFFSET).field_id
    return held.values if held is not None else load_column(table.io, file.path, offset_id)
