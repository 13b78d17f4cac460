# SPDX-License-Identifier: Apache-2.0
"""Reads one Hudi table: its base, snapshots, files and live rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest
from lakeward.lake.core.reader import CoreReader
from lakeward.lake.core.table import LakeTable
from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.meta.columns import stored_schema, table_schema
from lakeward.lake.hudi.meta.properties import parse_partition_path
from lakeward.lake.hudi.meta.slices import GroupId, SeenFile, merge_order
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.hudi.scan.rows import HudiRows, base_facts, log_bounds
from lakeward.lake.satisfiable import filter_columns
from lakeward.model.bucket import Bucket
from lakeward.model.ids import SnapshotId
from lakeward.model.offsetset import OffsetSet
from lakeward.model.schema import OFFSET
from lakeward.model.systemcolumns import LAKE_NAMES
from lakeward.spi.lakefile import LakeFile, LakeTotals


class HudiLakeReader(CoreReader[HudiGround]):
    def __init__(self, lake_table: LakeTable[HudiGround], table: HudiTable) -> None:
        super().__init__(lake_table)
        self._table = table

    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        """A log file of a PK table is merged by key when it is read, and its group's base file with it."""
        ground = HudiGround.load(self._table)
        seen = self._seen(ground, snapshot_id)
        merged = {s.file.group for s in seen if s.file.is_log}
        stored = stored_schema(ground.columns)
        is_odd = any(not _is_same(a, b.type) for a, b in zip(table_schema(ground.columns).types, stored, strict=True))
        described = (self._describe(ground, s, is_merged=s.file.group in merged, is_odd=is_odd) for s in seen)
        return [f for f in described if bucket is None or f.bucket == bucket]

    def scan(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        wanted = None if buckets is None else set(buckets)
        parts = self._scan(snapshot_id, columns, filter, lambda b: wanted is None or b in wanted)
        return (batch for _, batch in parts)

    def scan_buckets(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket | None] | None = None,
        without: Mapping[Bucket, OffsetSet] | None = None,
    ) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        """The folder is listed once for all of them. Files that others added to a log table do not say their bucket."""
        wanted = None if buckets is None else set(buckets)
        gone = without or {}
        scanned = columns if not gone else list(dict.fromkeys((*(columns or ()), OFFSET)))
        for bucket, batch in self._scan(snapshot_id, scanned, filter, lambda b: wanted is None or b in wanted):
            offsets = None if bucket is None else gone.get(bucket)
            if offsets:
                keep = ~offsets.mask(batch.column(OFFSET).to_numpy(zero_copy_only=False))
                batch = batch.filter(pa.array(keep))
            yield bucket, batch.select(list(columns or ())) if gone else batch

    def _scan(
        self,
        snapshot_id: SnapshotId,
        columns: Sequence[str] | None,
        filter: pc.Expression | None,
        is_wanted: Callable[[Bucket | None], bool],
    ) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        ground = HudiGround.load(self._table)
        seen = self._seen(ground, snapshot_id)
        schema = table_schema(ground.columns)
        names = list(columns) if columns is not None else [n for n in schema.names if n not in LAKE_NAMES]
        if missing := [n for n in names if n not in schema.names]:
            raise InvalidRequest(what=f"columns {', '.join(missing)}", reason="the lake table has none of that name")
        asked = filter_columns(filter, {f.name: f.type for f in schema})
        read = list(dict.fromkeys((*names, *asked)))
        rows = HudiRows(self._table.files, self._table.name, schema)
        groups: dict[GroupId, list[SeenFile]] = {}
        for found in seen:
            groups.setdefault(found.file.group, []).append(found)
        buckets = {group: self._bucket(members[0]) for group, members in groups.items()}
        for group in sorted(groups, key=lambda g: (buckets[g] is None, buckets[g] or Bucket("", 0), g)):
            bucket, members = buckets[group], groups[group]
            if not is_wanted(bucket):
                continue
            for part in rows.live(merge_order(members), read):
                chosen = (part if filter is None else part.filter(filter)).select(names)
                for batch in chosen.combine_chunks().to_batches():
                    yield bucket, batch

    def totals(self) -> LakeTotals:
        ground = HudiGround.load(self._table)
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
    """As its commit counted them; 0 where that was archived."""
    instant = ground.timeline.find(seen.file.instant)
    stats = () if instant is None else ground.timeline.metadata(instant).stats
    path = f"{seen.file.partition}/{seen.file.name}" if seen.file.partition else seen.file.name
    return sum(int(s.get("numWrites") or 0) for s in stats if s.get("path") == path)


def _is_same(shown: pa.DataType, stored: pa.DataType) -> bool:
    """May an engine scan the file by itself? It takes a timestamp of any unit."""
    return shown == stored or not (pa.types.is_integer(shown) or pa.types.is_nested(shown))
