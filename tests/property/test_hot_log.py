# SPDX-License-Identifier: Apache-2.0
"""A random program of puts, retries, restarts, kills, uploads and retention against plain lists."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lakeward.errors import OutOfSequence
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import (
    OFFSET,
    TIMESTAMP,
    Bucket,
    Column,
    OffsetMap,
    Schema,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    new_table_id,
    parse_type,
)
from lakeward.spi import RetentionGuard
from lakeward_testing.clock import ManualClock

BUCKETS = (Bucket("", 0), Bucket("", 1))
TTL_S = 100


class Guard(RetentionGuard):
    def __init__(self) -> None:
        self.lake: dict[Bucket, int] = {}

    def lake_offset(self, table_id: TableId, bucket: Bucket) -> int | None:
        return self.lake.get(bucket)

    def held_from(self, table_id: TableId, bucket: Bucket) -> int | None:
        return None

    def lake_enabled(self, table_id: TableId) -> bool:
        return True


class HotLog(RuleBasedStateMachine):
    """Per bucket a list of (offset, id, time); what was fsynced must survive, what is above the lake's offset must
    stay.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock, self.guard, self.lives = ManualClock(), Guard(), 0
        self.rows: dict[Bucket, list[tuple[int, int, int]]] = {b: [] for b in BUCKETS}
        self.ends = dict.fromkeys(BUCKETS, 0)
        self.synced = dict.fromkeys(BUCKETS, 0)
        self.puts: dict[tuple[int, Bucket], list[tuple[int, int, int]]] = {}
        self.next_id = 0
        self.store = self._open()

    @initialize(policy=st.sampled_from(["always", "never"]), compression=st.sampled_from(["none", "zstd"]))
    def create(self, policy: str, compression: str) -> None:
        descriptor = TableDescriptor(
            schema=Schema(columns=(Column(name="id", type=parse_type("BIGINT")),)),
            bucket_count=2,
            properties={
                "table.log.fsync": policy,
                "table.log.arrow.compression.type": compression,
                "table.log.ttl": f"{TTL_S} s",
            },
        )
        self.table = TableInfo(path=TablePath("db", "t"), table_id=new_table_id(), descriptor=descriptor)
        self.store.create_table(self.table)
        self.always = policy == "always"

    def _open(self) -> EmbeddedStore:
        options = StoreOptions.with_settings({"log.segment.file-size": "1kb", "log.index.interval-size": "200b"})
        store = EmbeddedStore.open(self.folder / str(self.lives), options, self.clock)
        store.set_retention(self.guard)
        return store

    # ---- what may happen -----------------------------------------------------------------------------------------
    @rule(bucket=st.sampled_from(BUCKETS), count=st.integers(0, 4), writer=st.sampled_from([None, 1, 2**62]))
    def put(self, bucket: Bucket, count: int, writer: int | None) -> None:
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        sequence = None if writer is None else WriterSequence(writer, len(self.puts.get((writer, bucket), ())))
        put = self.store.append(self.table, bucket, pa.record_batch({"id": pa.array(ids, pa.int64())}), sequence)
        assert not put.duplicate
        assert (put.start, put.stop) == (self.ends[bucket], self.ends[bucket] + max(count, 1))
        self.rows[bucket] += [(put.start + i, id, self.clock.now_ms()) for i, id in enumerate(ids)]
        self.ends[bucket] = put.stop
        if self.always:
            self.synced[bucket] = put.stop
        if writer is not None:
            self.puts.setdefault((writer, bucket), []).append((put.start, put.stop, count))

    @rule(bucket=st.sampled_from(BUCKETS), writer=st.sampled_from([1, 2**62]), back=st.integers(1, 5))
    def retry(self, bucket: Bucket, writer: int, back: int) -> None:
        puts = self.puts.get((writer, bucket), [])
        if len(puts) < back:
            return
        put = self.store.append(
            self.table,
            bucket,
            pa.record_batch({"id": pa.array([0], pa.int64())}),
            WriterSequence(writer, len(puts) - back),
        )
        assert (put.start, put.stop, put.duplicate) == (*puts[-back][:2], True)
        if self.always:
            self.synced[bucket] = max(self.synced[bucket], put.stop)

    @rule(bucket=st.sampled_from(BUCKETS), writer=st.sampled_from([1, 2**62]), skipped=st.integers(1, 3))
    def leave_a_gap(self, bucket: Bucket, writer: int, skipped: int) -> None:
        due = len(self.puts.get((writer, bucket), ()))
        with pytest.raises(OutOfSequence) as caught:
            self.store.append(
                self.table,
                bucket,
                pa.record_batch({"id": pa.array([0], pa.int64())}),
                WriterSequence(writer, due + skipped),
            )
        assert caught.value.expected == due

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.synced = dict(self.ends)
        self.store = self._open()

    @rule()
    def kill(self) -> None:
        """A kill keeps what the system's cache has: everything, fsynced or not."""
        self.lives += 1
        shutil.copytree(self.folder / str(self.lives - 1), self.folder / str(self.lives))
        self.store.close()
        self.store = self._open()
        self.synced = dict(self.ends)

    @rule()
    def upload(self) -> None:
        self.store.upkeep.upload()
        assert self.store.upkeep.failures == {}
        self.synced = {b: v.end for b, v in self.store.bounds(self.table).items()}

    @rule(bucket=st.sampled_from(BUCKETS), share=st.floats(0, 1))
    def tier(self, bucket: Bucket, share: float) -> None:
        """The lake commits a part of what a round froze."""
        end = self.store.freeze(self.table)[bucket].end
        self.synced = dict(self.ends)
        self.guard.lake[bucket] = max(self.guard.lake.get(bucket, 0), int(end * share))

    @rule(seconds=st.integers(1, TTL_S))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def expire(self) -> None:
        self.store.upkeep.expire()
        assert self.store.upkeep.failures == {}

    @rule(bucket=st.sampled_from(BUCKETS), ahead=st.integers(1, 50))
    def lake_is_ahead(self, bucket: Bucket, ahead: int) -> None:
        self.ends[bucket] += ahead
        self.store.guard_offsets(self.table, OffsetMap({bucket: self.ends[bucket]}))
        self.synced[bucket] = self.ends[bucket]
        self.guard.lake[bucket] = self.ends[bucket]

    # ---- what must hold ------------------------------------------------------------------------------------------
    @invariant()
    def readers_see_what_is_on_disk_and_nothing_needed_is_gone(self) -> None:
        if not hasattr(self, "table"):
            return
        for bucket, bounds in self.store.bounds(self.table).items():
            assert bounds.end == self.synced[bucket]
            assert bounds.start <= self.guard.lake.get(bucket, 0), "the lake has what is gone"
            batches = self.store.read_log(self.table, bucket, bounds.start, bounds.end)
            seen = [
                (r[OFFSET], r["id"], round(r[TIMESTAMP].timestamp() * 1000)) for b in batches for r in b.to_pylist()
            ]
            assert seen == [r for r in self.rows[bucket] if bounds.start <= r[0] < bounds.end]
            young = [o for o, _, at in self.rows[bucket] if self.clock.now_ms() - at <= TTL_S * 1000]
            assert not young or bounds.start <= min(young), "none goes before its time"

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)


TestHotLog = HotLog.TestCase
TestHotLog.settings = settings(max_examples=settings().max_examples // 5, stateful_step_count=30)
