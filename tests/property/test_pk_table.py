# SPDX-License-Identifier: Apache-2.0
"""PK buckets against a plain dict and a list: random programs of puts, restarts, crashes, lost tails, snapshots,
retention.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.changelog import Fold
from lakeward.hot.embedded.kv.bucket import KvBucket
from lakeward.hot.embedded.kv.database import KvResources
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import (
    ArrayType,
    Bucket,
    ChangeType,
    Column,
    Int32Type,
    Schema,
    StringType,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    to_arrow_schema,
)
from lakeward.spi import RetentionGuard
from lakeward_testing.clock import ManualClock
from lakeward_testing.hots.changelog import MemoryChangelogLog

Key = tuple[int, str]
Values = tuple[Any, ...]
Record = tuple[int, str, int | None, Key, Values]

SCHEMA = Schema(
    columns=(
        Column(name="a", type=Int32Type(nullable=False)),
        Column(name="b", type=StringType(nullable=False)),
        Column(name="s", type=StringType()),
        Column(name="v", type=Int32Type()),
        Column(name="l", type=ArrayType(element=Int32Type())),
    )
)
ARROW = pa.schema([f.with_nullable(True) for f in to_arrow_schema(SCHEMA)])
RESOURCES = KvResources(1 << 20, 8 << 20)

keys = st.tuples(st.integers(0, 2), st.sampled_from(["", "x"]))
texts = st.sampled_from([None, "", "p", "q"])
numbers = st.sampled_from([None, 0, 1])
lists = st.sampled_from([None, [], [1, None]])
rows = st.lists(st.tuples(keys, st.tuples(texts, numbers, lists)), max_size=6)
parts = st.lists(st.tuples(keys, st.tuples(numbers)), max_size=6)
plain = st.sampled_from(
    [
        "sync",
        "flush",
        "restart",
        "crash",
        "power-cut",
        "late-power-cut",
        "snapshot",
        "release",
        "retain",
        "tick",
        "rebuild",
        "close-idle",
    ]
)
steps = st.one_of(
    st.tuples(st.just("upsert"), rows),
    st.tuples(st.just("upsert"), rows),
    st.tuples(st.just("partial"), parts),
    st.tuples(st.just("delete"), st.lists(keys, max_size=4)),
    st.tuples(plain, st.none()),
)


@dataclass
class Model:
    """The same table, one row at a time: key -> (values, offset), and every record."""

    with_before_images: bool
    live: dict[Key, tuple[Values, int]] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    end: int = 0

    def upsert(self, rows: list[tuple[Key, Values]]) -> None:
        self._put([(key, values) for key, values in rows])

    def partial(self, rows: list[tuple[Key, Values]]) -> None:
        begun, done = self.end, len(self.records)
        for key, (number,) in rows:
            (text, _, items), _ = self.live.get(key, ((None, None, None), 0))
            self._one(key, (text, number, items))
        self._finish(begun, done)

    def delete(self, keys: list[Key]) -> None:
        begun, done = self.end, len(self.records)
        for key in keys:
            if key in self.live:
                values, offset = self.live.pop(key)
                self._record("-D", offset, key, values)
        self._finish(begun, done)

    def _put(self, rows: list[tuple[Key, Values]]) -> None:
        begun, done = self.end, len(self.records)
        for key, values in rows:
            self._one(key, values)
        self._finish(begun, done)

    def _one(self, key: Key, values: Values) -> None:
        if key not in self.live:
            self._record("+I", None, key, values)
        else:
            old, offset = self.live[key]
            if old == values:
                return
            if self.with_before_images:
                self._record("-U", offset, key, old)
            self._record("+U", offset, key, values)
        self.live[key] = (values, self.end - 1)

    def _record(self, kind: str, prev: int | None, key: Key, values: Values) -> None:
        self.records.append((self.end, kind, prev, key, values))
        self.end += 1

    def _finish(self, begun: int, done: int) -> None:
        if len(self.records) == done:
            self.end = begun + 1

    def copy(self) -> Model:
        return Model(self.with_before_images, dict(self.live), list(self.records), self.end)


class Bench:
    """The bucket under test beside its model, and the models of earlier ends to go back to."""

    def __init__(self, folder: Path, image: str) -> None:
        self.folder, self.lives = folder, 0
        self.log, self.clock = MemoryChangelogLog(), ManualClock()
        self.info = table_info(image)
        self.model = Model(image.lower() == "full")
        self.past = {0: self.model.copy()}
        self.snapshots: dict[str, tuple[int, Model]] = {}
        self.kv = self._open()

    @property
    def home(self) -> Path:
        return self.folder / str(self.lives)

    def _open(self) -> KvBucket:
        return KvBucket(
            self.home, self.info, Bucket("", 0), self.log, schemas={1: SCHEMA}, resources=RESOURCES, clock=self.clock
        )

    def run(self, step: str, what: Any) -> None:
        self.clock.advance(1)
        if step in ("upsert", "partial", "delete"):
            self._put(step, what)
        else:
            getattr(self, step.replace("-", "_"))()

    def _put(self, step: str, what: Any) -> None:
        begun = self.model.end
        getattr(self.model, step)(what)
        if step == "delete":
            appended = self.kv.delete(batch([(key, ()) for key in what], ()))
        else:
            names = ("s", "v", "l") if step == "upsert" else ("v",)
            appended = self.kv.upsert(batch(what, names), None if step == "upsert" else names)
        assert (appended.start, appended.stop) == (begun, self.model.end)
        self.past[self.model.end] = self.model.copy()

    def sync(self) -> None:
        self.log.sync()

    def flush(self) -> None:
        with self.kv._using("a flush") as database:
            database.flush()

    def close_idle(self) -> None:
        """Files that nobody uses are closed; the next step opens them again."""
        assert self.kv.close_idle()
        assert self.kv.handles == 0

    def tick(self) -> None:
        self.clock.advance(700)
        self.kv.tick()

    def restart(self) -> None:
        self.kv.close()
        self.kv = self._open()

    def crash(self, *, power_cut: bool = False) -> None:
        if power_cut:
            self.log.lose_unsynced()
            self.model = self.past[self.log.end].copy()
        home = self.home
        self.lives += 1
        shutil.copytree(home, self.home)
        self.kv.abandon()
        self.kv = self._open()

    def power_cut(self) -> None:
        self.crash(power_cut=True)

    def late_power_cut(self) -> None:
        """KV reached the disk, the log's tail did not."""
        self.flush()
        self.crash(power_cut=True)

    def rebuild(self) -> None:
        self.kv.close()
        shutil.rmtree(self.home / "db", ignore_errors=True)
        self.kv = self._open()

    def snapshot(self) -> None:
        holder = f"round-{len(self.snapshots)}"
        taken = self.kv.take_snapshot(holder)
        if taken is None:
            assert self.model.end == 0
            return
        assert taken.log_offset == self.model.end <= self.log.synced_end
        assert taken.rows == len(self.model.live)
        self.snapshots[holder] = (taken.log_offset, self.model.copy())
        assert self._snapshot_rows(taken.snapshot_id) == self.model.live

    def release(self) -> None:
        for holder in list(self.snapshots)[:1]:
            self.kv.snapshots.release(holder)
            self.snapshots[holder] = (-1, self.model)

    def retain(self) -> None:
        self.log.cut_before(max(self.kv.needed_from(), self.log.start))

    def _snapshot_rows(self, snapshot_id: str) -> dict[Key, tuple[Values, int]]:
        return live_rows(list(self.kv.read_snapshot(snapshot_id)))

    def check(self) -> None:
        start = self.log.start
        batches = list(self.log.read(start, self.log.end, unsynced=True))
        assert self.log.end == self.model.end
        assert [r for b in batches for r in records_of(b)] == [r for r in self.model.records if r[0] >= start]
        every = [(a, b) for a in range(3) for b in ("", "x")]
        assert live_rows([self.kv.lookup(batch([(key, ()) for key in every], ()))]) == self.model.live
        assert self.kv.rows == len(self.model.live)
        if start == 0:
            assert folded(batches, self.log.end) == self.model.live
        for holder, (offset, model) in self.snapshots.items():
            stored = self.kv.snapshots.find_leased(holder)
            if stored is not None:
                assert stored.log_offset == offset
                assert self._snapshot_rows(stored.snapshot_id) == model.live


class FreeGuard(RetentionGuard):
    """A table without a lake: retention alone, and what KV needs, decide."""

    def lake_offset(self, table_id: TableId, bucket: Bucket) -> int | None:
        return None

    def held_from(self, table_id: TableId, bucket: Bucket) -> int | None:
        return None

    def lake_enabled(self, table_id: TableId) -> bool:
        return False


class StoreBench(Bench):
    """The same over a whole store: real segments, remote tier, upkeep. Every put is on disk,
    so a crash takes nothing.
    """

    def _open(self) -> KvBucket:
        self.home.mkdir(parents=True, exist_ok=True)
        options = StoreOptions.with_settings({"log.segment.file-size": "1kb"})
        self.store = EmbeddedStore.open(self.home, options, self.clock)
        self.store.set_retention(FreeGuard())
        if not self.store.list_tables():
            self.store.create_table(self.info)
        hot = self.store.hot_table(self.info)
        found = hot.make_bucket(Bucket("", 0))
        self.log = found.log  # type: ignore[assignment]
        return found.kv(hot.schemas)

    def restart(self) -> None:
        self.store.close()
        self.kv = self._open()

    def crash(self, *, power_cut: bool = False) -> None:
        before, home = self.store, self.home
        self.lives += 1
        shutil.copytree(home, self.home)
        before.close()
        self.kv = self._open()

    def rebuild(self) -> None:
        self.store.close()
        for database in self.home.glob("**/kv/db"):
            shutil.rmtree(database)
        self.kv = self._open()

    def retain(self) -> None:
        self.clock.advance(8 * 86_400)
        self.store.upkeep.upload()
        self.store.upkeep.expire()
        assert not self.store.upkeep.failures

    def tick(self) -> None:
        self.clock.advance(700)
        self.store.upkeep.tend_keys()


def table_info(image: str) -> TableInfo:
    descriptor = TableDescriptor(schema=SCHEMA, primary_key=("a", "b"), properties={"table.changelog.image": image})
    return TableInfo(path=TablePath("db", "t"), table_id=TableId("t-1"), descriptor=descriptor)


def batch(rows: list[tuple[Key, Values]], names: tuple[str, ...]) -> pa.RecordBatch:
    values = [dict(zip(("a", "b", *names), (*key, *value), strict=True)) for key, value in rows]
    return pa.RecordBatch.from_pylist(values, schema=pa.schema([ARROW.field(n) for n in ("a", "b", *names)]))


def records_of(batch: pa.RecordBatch) -> list[Record]:
    return [
        (
            r["__offset"],
            ChangeType(r["__change_type"]).short,
            r["__prev_offset"],
            (r["a"], r["b"]),
            (r["s"], r["v"], r["l"]),
        )
        for r in batch.to_pylist()
    ]


def live_rows(batches: list[pa.RecordBatch]) -> dict[Key, tuple[Values, int]]:
    return {(r["a"], r["b"]): ((r["s"], r["v"], r["l"]), r["__offset"]) for b in batches for r in b.to_pylist()}


def folded(batches: list[pa.RecordBatch], end: int) -> dict[Key, tuple[Values, int]]:
    fold = Fold(0, end)
    for b in batches:
        fold.see(b)
    fold.seal()
    return live_rows([fold.live(b) for b in batches])


@settings(max_examples=settings().max_examples // 2)
@given(st.sampled_from(["FULL", "WAL"]), st.lists(steps, max_size=14))
def test_a_bucket_is_its_model(image: str, program: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), image)
        try:
            for step, what in program:
                bench.run(step, what)
                bench.check()
        finally:
            bench.kv.abandon()


@settings(max_examples=settings().max_examples // 4)
@given(st.sampled_from(["full", "wal"]), st.lists(steps, max_size=14))
def test_a_store_is_its_model(image: str, program: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = StoreBench(Path(folder), image)
        try:
            for step, what in program:
                bench.run(step, what)
                bench.check()
        finally:
            bench.store.close()
