# SPDX-License-Identifier: Apache-2.0
"""One round on a lake, step by step, without Spark and without a coordinator: for contract suites and
protocol tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakeward.changelog import Fold
from lakeward.changelog.columns import without_prev
from lakeward.model import (
    BUCKET,
    OFFSET,
    Bucket,
    LakeBase,
    LogSplit,
    OffsetRange,
    OffsetSet,
    RoundId,
    SnapshotId,
    TableInfo,
    new_round_id,
    partition_values,
    to_arrow_type,
)
from lakeward.spi import (
    CommitProperties,
    Committable,
    DeleteEncoding,
    LakeSnapshot,
    LakeStorage,
    Precondition,
    Renewal,
    SupportsChanges,
    WriteTask,
)
from lakeward_testing.scripted_log import Row, ScriptedLog


@dataclass(kw_only=True)
class LakeRound:
    """Planned when it is made. `write` splits, then `prepare`, then `commit`; or `run` for all of it."""

    lake: LakeStorage
    log: ScriptedLog
    table: TableInfo
    round_id: RoundId = field(default_factory=new_round_id)
    epoch: int = 1
    generation: int = 0
    is_resyncing: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)
    planned_on: LakeBase | None = None
    results: list[bytes] = field(default_factory=list)
    replaced: dict[Bucket, OffsetSet] = field(default_factory=dict)
    stops: dict[Bucket, int] = field(default_factory=dict)
    renewal: Renewal | None = None

    def __post_init__(self) -> None:
        self.reader = self.lake.open_reader(self.table)
        self.committer = self.lake.open_committer(self.table)
        self.base: LakeBase = self.planned_on or self.reader.load_base()
        self.handle = self.committer.begin(self.round_id)

    @classmethod
    def plan(cls, lake: LakeStorage, log: ScriptedLog, **options: Any) -> LakeRound:
        return cls(lake=lake, log=log, table=options.pop("table", log.table), **options)

    def start(self, bucket: Bucket) -> int:
        return self.stops.get(bucket, self.base.offsets.get(bucket, 0))

    def write(
        self, bucket: Bucket, stop: int | None = None, *, batches: int = 1, attempt: int = 0, sliced: bool = False
    ) -> LakeRound:
        """Writes the next sub-split of a bucket: from where the last one stopped up to `stop` (default: the log's end),
        folded where the format takes positions, as changes where it merges by key itself. `sliced`: the rows are the
        end of a larger batch in memory.
        """
        start, stop = self.start(bucket), self.log.end(bucket) if stop is None else stop
        fold = Fold(start, stop)
        whole = self.log.batch(bucket, start, stop)
        if sliced:
            whole = pa.concat_batches([whole, whole]).slice(whole.num_rows)
        size = max(1, -(-whole.num_rows // batches))
        parts = [whole.slice(at, size) for at in range(0, whole.num_rows, size)]
        for part in parts:
            fold.see(part)
        fold.seal()
        writer = self.lake.open_writer(self.task(bucket, start, stop, attempt))
        try:
            if self.table.is_pk and self.lake.capabilities.encoding(has_prev_offset=True) is DeleteEncoding.NATIVE:
                assert isinstance(writer, SupportsChanges)
                for part in parts:
                    writer.write_changes(without_prev(part))
                self.take(bucket, stop, writer.complete())
            else:
                for live in filter(len, map(fold.live, parts)):
                    writer.write(live)
                self.take(bucket, stop, writer.complete(), fold.replaced_below)
        except BaseException:
            writer.abort()
            raise
        return self

    def take(self, bucket: Bucket, stop: int, result: bytes | None, replaced: OffsetSet | None = None) -> None:
        """Counts a split's result, as the driver does."""
        self.results += [result] if result is not None else []
        if replaced:
            self.replaced[bucket] = self.replaced.get(bucket, OffsetSet()).union(replaced)
        self.stops[bucket] = stop

    def task(self, bucket: Bucket, start: int, stop: int, attempt: int = 0) -> WriteTask:
        index = len(self.results)
        split = LogSplit(bucket=bucket, range=OffsetRange(start, stop), index=index)
        return WriteTask(round_id=self.round_id, table=self.table, split=split, attempt=attempt, handle=self.handle)

    def prepare(self, base: LakeBase | None = None) -> Committable:
        """On the head as it is now, unless a base is given."""
        generation = max(self.generation, self.base.generation)
        properties = CommitProperties(
            round_id=self.round_id,
            epoch=self.epoch,
            job="contract",
            offsets=self.stops,
            generation=generation,
            is_resyncing=self.is_resyncing,
            extra=self.extra,
        )
        base = base or self.reader.load_base()
        return self.committer.prepare(self.results, self.replaced, base, properties, self.renewal)

    @property
    def precondition(self) -> Precondition:
        starts = {bucket: self.base.offsets.get(bucket) for bucket in self.stops}
        return Precondition(table_id=self.table.table_id, token=self.base.token, starts=starts)

    def commit(self, committable: Committable | None = None) -> LakeSnapshot:
        return self.committer.commit(committable or self.prepare(), self.precondition)

    def run(self, *buckets: Bucket) -> LakeSnapshot:
        """Writes everything new of these buckets (default: of all), and commits."""
        for bucket in buckets or sorted(self.log.ends()):
            if self.log.end(bucket) > self.start(bucket):
                self.write(bucket)
        return self.commit()


def lake_rows(
    lake: LakeStorage, table: TableInfo, snapshot_id: SnapshotId | None = None
) -> list[tuple[Bucket, int, Row]]:
    """(bucket, offset, row) of every live row of a snapshot (default: main's head), as `ScriptedLog.expected` spells
    them.
    """
    reader = lake.open_reader(table)
    snapshot = reader.load_snapshot(snapshot_id)
    if snapshot is None:
        return []
    names = [*table.schema.names, BUCKET, OFFSET]
    rows = []
    for batch in reader.scan(snapshot.snapshot_id, columns=names):
        for row in batch.to_pylist():
            number, offset = row.pop(BUCKET), row.pop(OFFSET)
            rows.append((Bucket(_partition(table, row), number), offset, row))
    return sorted(rows, key=lambda r: r[:2])


def _partition(table: TableInfo, row: Mapping[str, Any]) -> str:
    parts = []
    for key in table.descriptor.partitioning:
        values = pa.array([row[key.column]], to_arrow_type(table.schema.column(key.column).type))
        parts.append(str(row[key.column]) if key.unit is None else key.texts(pa.chunked_array([values]))[0].as_py())
    return "$".join(parts)


def partition_row(table: TableInfo, bucket: Bucket) -> Row:
    """The partition columns' values of a bucket's rows (text partition keys)."""
    return dict(zip(table.descriptor.partition_keys, partition_values(bucket.partition), strict=True))
