# SPDX-License-Identifier: Apache-2.0
"""Reads one Hudi table: its base, snapshots, files and live rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakeward.lake.core.reader import RowScan, ScanReader
from lakeward.lake.core.table import LakeTable
from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.meta.columns import stored_schema, table_schema
from lakeward.lake.hudi.meta.properties import parse_partition_path
from lakeward.lake.hudi.meta.slices import GroupId, SeenFile, merge_order
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.hudi.scan.rows import HudiRows, base_facts, log_bounds
from lakeward.model import Bucket, SnapshotId
from lakeward.spi import LakeFile, LakeTotals


class HudiLakeReader(ScanReader[HudiGround]):
    def __init__(self, lake_table: LakeTable[HudiGround], table: HudiTable) -> None:
        super().__init__(lake_table)
        self._table = table

    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        """Describes files. A log file of a PK table is merged by key when it is read, together with its group's base
        file."""
        ground = self._log.load()
        seen = self._seen(ground, snapshot_id)
        merged = {s.file.group for s in seen if s.file.is_log}
        stored = stored_schema(ground.columns)
        is_odd = any(not _is_same(a, b.type) for a, b in zip(table_schema(ground.columns).types, stored, strict=True))
        described = (self._describe(ground, s, is_merged=s.file.group in merged, is_odd=is_odd) for s in seen)
        return [f for f in described if bucket is None or f.bucket == bucket]

    def row_schema(self, ground: HudiGround) -> pa.Schema:
        return table_schema(ground.columns)

    def read_rows(
        self, ground: HudiGround, snapshot_id: SnapshotId, scan: RowScan
    ) -> Iterator[tuple[Bucket | None, pa.Table]]:
        """Reads rows of a log table; files that other engines added have no bucket."""
        rows, groups = HudiRows(self._table.files, self._table.name, scan.schema), dict[GroupId, list[SeenFile]]()
        for seen in self._seen(ground, snapshot_id):
            groups.setdefault(seen.file.group, []).append(seen)
        buckets = {group: self._bucket(members[0]) for group, members in groups.items()}
        for group in sorted(groups, key=lambda g: (buckets[g] is None, buckets[g] or Bucket("", 0), g)):
            if scan.has(buckets[group]):
                parts = rows.live(merge_order(groups[group]), scan.schema.names)
                yield from ((buckets[group], part) for part in parts)

    def totals(self) -> LakeTotals:
        ground = self._log.load()
        head, timeline = ground.timeline.head, ground.timeline
        files = [] if head is None else self.files(head.id)
        return LakeTotals(
            data_files=len(files),
            delete_files=0,
            rows=sum(f.record_count for f in files),
            bytes=sum(f.size_bytes for f in files),
            snapshots=sum(i.requested not in ground.expired for i in timeline.snapshots),
            is_exact=not any(f.is_merged for f in files),
        )

    def _seen(self, ground: HudiGround, snapshot_id: SnapshotId) -> list[SeenFile]:
        instant = ground.get(snapshot_id)
        return [s for s in ground.seen if s.is_in(instant.completed)]

    def _bucket(self, seen: SeenFile) -> Bucket | None:
        return seen.file.bucket(self._info.descriptor.partition_keys, is_pk=self._info.is_pk)

    def _describe(self, ground: HudiGround, seen: SeenFile, *, is_merged: bool, is_odd: bool) -> LakeFile:
        file = seen.file
        facts = None if file.is_log else base_facts(self._table.files, file, self._table.name)
        return LakeFile(
            path=file.path,
            bucket=self._bucket(seen),
            record_count=log_rows(ground, seen) if facts is None else facts.rows,
            size_bytes=file.size_bytes,
            offsets=log_bounds(self._table.files, file, self._table.name) if facts is None else facts.offsets,
            sequence=int(seen.since),
            partition=parse_partition_path(file.partition),
            is_reader_needed=is_merged or is_odd,
            is_merged=is_merged,
        )


def log_rows(ground: HudiGround, seen: SeenFile) -> int:
    """Returns its row count from its commit; 0 if that was archived."""
    instant = ground.timeline.find(seen.file.instant)
    stats = () if instant is None else ground.timeline.metadata(instant).stats
    path = f"{seen.file.partition}/{seen.file.name}" if seen.file.partition else seen.file.name
    return sum(int(s.get("numWrites") or 0) for s in stats if s.get("path") == path)


def _is_same(shown: pa.DataType, stored: pa.DataType) -> bool:
    """Whether an engine may scan the file directly. It accepts timestamps of any unit."""
    return shown == stored or not (pa.types.is_integer(shown) or pa.types.is_nested(shown))
