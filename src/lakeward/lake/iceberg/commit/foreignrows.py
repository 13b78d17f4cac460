# SPDX-License-Identifier: Apache-2.0
"""Foreign rows of a PK table since our newest snapshot. A foreign rewrite moves rows; an insert adds rows that no
changelog has.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.core.files import AddressedFiles
from lakeward.lake.core.foreign import find_foreign_rows
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.commit.resolve import Hit
from lakeward.lake.iceberg.datafile.offsetcache import OffsetLoader
from lakeward.lake.iceberg.meta.summary import summary_of
from lakeward.lake.iceberg.meta.types import is_clean
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.snapshotfiles import PlannedFile, plan_files
from lakeward.model import OFFSET, Bucket, Offsets, OffsetSet
from lakeward.spi import LakeFile, Renewal


def find_foreign_hits(
    ground: IcebergGround, partition_keys: tuple[str, ...], renewal: Renewal | None = None
) -> tuple[list[Hit], int]:
    """As core's `find_foreign_rows`; reads nothing if foreign snapshots added no file. Rows of a clean table have no
    address: all rows of files that other engines appended count."""
    reconciled, table = ground.reconciled, ground.table
    if is_clean(table.metadata.schema()):
        return _appended(ground, partition_keys), 0
    if reconciled.newest is None or ground.head is None or not any(map(may_insert, reconciled.foreign)):
        return [], 0
    before, now = (IcebergSnapshotFiles(table, at, partition_keys) for at in (reconciled.newest, ground.head))
    compared = None if renewal is None else table.metadata.snapshot_by_id(int(renewal.head))
    seen = {} if compared is None else plan_by_path(table, compared, partition_keys)
    buckets = () if renewal is None or compared is None else renewal.offsets.keys()
    rows, copies = find_foreign_rows(before, now, buckets, seen)
    return [Hit(p.file, p.indexed.spec_id, rows[now.key(p)].values) for p in now.files if now.key(p) in rows], copies


def _appended(ground: IcebergGround, partition_keys: tuple[str, ...]) -> list[Hit]:
    appends = {s.snapshot_id for s in ground.reconciled.foreign if summary_of(s).get("operation") == "append"}
    if not appends or ground.head is None:
        return []
    files = IcebergSnapshotFiles(ground.table, ground.head, partition_keys)
    added = [p for p in files.files if p.indexed.entry.snapshot_id in appends]
    return [Hit(p.file, p.indexed.spec_id, files.live_positions(p)) for p in added]


class IcebergSnapshotFiles(AddressedFiles[PlannedFile]):
    def __init__(self, table: Table, snapshot: Snapshot, partition_keys: tuple[str, ...]) -> None:
        schema = table.metadata.schema()
        self.files = list(plan_by_path(table, snapshot, partition_keys).values())
        self._deletes, self._table = DeleteFilter(table.io, schema), table

    @cached_property
    def _loader(self) -> OffsetLoader:
        return OffsetLoader(self._table.io, self._table.metadata.schema().find_field(OFFSET).field_id)

    def key(self, file: PlannedFile) -> str:
        return file.file.file_path

    def describe(self, file: PlannedFile) -> LakeFile:
        return file.describe()

    def offsets(self, file: PlannedFile) -> Offsets:
        return self._loader.load(file.file)

    def deleted(self, file: PlannedFile) -> OffsetSet:
        """Returns rows deleted by position and by key."""
        return OffsetSet(self._deletes.positions(file.describe()))

    def is_same(self, file: PlannedFile, before: PlannedFile) -> bool:
        return {d.file.file_path for d in file.deletes} == {d.file.file_path for d in before.deletes}

    def origins(self, bucket: Bucket | None, buckets: Collection[Bucket | None]) -> Collection[Bucket | None]:
        """Returns the buckets whose rows a file may contain: all, for a file without a bucket."""
        return buckets if bucket is None else [b for b in (bucket, None) if b in buckets]


def plan_by_path(table: Table, snapshot: Snapshot, partition_keys: tuple[str, ...]) -> dict[str, PlannedFile]:
    return {p.file.file_path: p for p in plan_files(table.metadata, table.io, snapshot, partition_keys)}


def may_insert(snapshot: Snapshot) -> bool:
    """Whether a snapshot may insert rows: a `replace` changes none, by Iceberg's rule."""
    summary = summary_of(snapshot)
    return summary.get("operation") != "replace" and summary.get("added-data-files") != "0"
