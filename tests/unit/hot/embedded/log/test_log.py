# SPDX-License-Identifier: Apache-2.0
"""A bucket's log through the store: ranges, segments, indexes, times, group commit, what readers see."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from lakeward.errors import BucketStopped, BucketUnavailable, InvalidRequest, InvalidRows, OffsetOutOfRange
from lakeward.hot.embedded.log.log import BucketLog
from lakeward.hot.embedded.log.rowshape import READ_ROWS
from lakeward.hot.embedded.log.segment import index_path, list_bases
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.hot.embedded.storerows import MAX_PUT_ROWS
from lakeward.model import CHANGE_TYPE, OFFSET, TIMESTAMP, ChangeType, TableInfo, to_arrow_schema
from lakeward_testing.faults import Faults
from lakeward_testing.waiting import wait_until
from tests.unit.hot.embedded.yard import B0, Yard, read, rows


def log_of(store: EmbeddedStore, table: TableInfo) -> BucketLog:
    found = store.hot_table(table).find_bucket(B0)
    assert found is not None
    return found.log


def test_every_range_reads_what_was_appended(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(properties={"table.log.fsync": "never"})
    store.create_table(table)
    for n in range(40):
        appended = store.append(table, B0, rows(*range(n * 3, n * 3 + 3)))
        assert (appended.start, appended.stop) == (n * 3, n * 3 + 3)
    folder = log_of(store, table).place.folder
    assert len(list_bases(folder)) > 3, "the test wants several segments"
    for start in range(0, 121, 7):
        for stop in range(start, 121, 11):
            assert read(store, table, start=start, stop=stop) == [(o, o) for o in range(start, stop)]


def test_rows_carry_the_system_columns(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(7, 8))
    yard.clock.advance(1.5)
    store.append(table, B0, rows(9))
    first, second = store.read_log(table, B0, 1, 3, ["text"])
    assert first.schema.names == ["text", OFFSET, TIMESTAMP, CHANGE_TYPE]
    assert first.schema.field(TIMESTAMP).type == pa.timestamp("ms", tz="UTC")
    assert first[CHANGE_TYPE].to_pylist() == [ChangeType.APPEND]
    assert (first[OFFSET].to_pylist(), second[OFFSET].to_pylist()) == ([1], [2])
    assert second[TIMESTAMP].cast(pa.int64()).to_pylist() == [yard.clock.now_ms()]
    assert first[TIMESTAMP].cast(pa.int64()).to_pylist() == [yard.clock.now_ms() - 1500]


@pytest.mark.parametrize("compression", ["none", "lz4_frame", "zstd"])
def test_compressed_tables_read_the_same(yard: Yard, store: EmbeddedStore, compression: str) -> None:
    table = yard.table(properties={"table.log.arrow.compression.type": compression})
    store.create_table(table)
    store.append(table, B0, rows(*range(100)))
    assert read(store, table, start=10, stop=20) == [(o, o) for o in range(10, 20)]


def test_ranges_outside_the_log_are_refused(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    assert list(store.read_log(table, B0, 0, 0)) == []
    store.append(table, B0, rows(1))
    for start, stop in ((0, 2), (2, 2), (1, 0)):
        with pytest.raises(OffsetOutOfRange):
            store.read_log(table, B0, start, stop)
    with pytest.raises(InvalidRequest, match="no column nope"):
        store.read_log(table, B0, 0, 1, ["nope"])


@pytest.mark.parametrize(
    ("batch", "column", "row", "reason"),
    [
        (pa.record_batch({"id": pa.array([1, None]), "text": pa.array(["a", "b"])}), "id", 1, "NOT NULL"),
        (pa.record_batch({"id": pa.array([1], pa.int32()), "text": pa.array(["a"])}), "id", 0, "int32 came"),
        (pa.record_batch({"id": pa.array([1]), "other": pa.array(["a"])}), "other", 0, "no such column"),
        (pa.record_batch({"text": pa.array(["a"])}), "id", 0, "missing"),
    ],
    ids=["null", "type", "unknown", "missing"],
)
def test_wrong_rows_are_refused_by_name(
    yard: Yard, store: EmbeddedStore, batch: pa.RecordBatch, column: str, row: int, reason: str
) -> None:
    table = yard.table()
    store.create_table(table)
    with pytest.raises(InvalidRows, match=reason) as caught:
        store.append(table, B0, batch)
    assert (caught.value.column, caught.value.row) == (column, row)
    assert store.freeze(table)[B0].end == 0


def test_columns_in_any_order_and_nullable_ones_left_out(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1).select(["text", "id"]))
    store.append(table, B0, rows(2).select(["id"]))
    found = pa.Table.from_batches(store.read_log(table, B0, 0, 2)).to_pydict()
    assert (found["id"], found["text"]) == ([1, 2], ["x", None])


def test_first_offset_at_a_time(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(properties={"table.log.fsync": "never"})
    store.create_table(table)
    begun = yard.clock.now_ms()
    for n in range(60):
        store.append(table, B0, rows(n, n))
        yard.clock.advance(1)
    store.freeze(table)
    for second in (-5, 0, 1, 17, 59, 60, 100):
        expected = 2 * min(max(second, 0), 60)
        assert store.offset_at(table, B0, begun + second * 1000) == expected
    assert store.offset_at(table, B0, begun + 16_001) == 34


def test_times_never_go_back(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    first = store.append(table, B0, rows(1))
    yard.clock.jump(-3600)
    assert store.append(table, B0, rows(2)).timestamp_ms == first.timestamp_ms


def test_missing_and_damaged_indexes_are_made_again(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(properties={"table.log.fsync": "never"})
    store.create_table(table)
    for n in range(60):
        store.append(table, B0, rows(n, n))
    folder = log_of(store, table).place.folder
    first, second, *_ = list_bases(folder)
    store.close()
    before = index_path(folder, first).read_bytes()
    index_path(folder, first).unlink()
    index_path(folder, second).write_bytes(b"\x00" * 30)
    store = yard.open()
    assert read(store, table) == [(o, o // 2) for o in range(120)]
    assert index_path(folder, first).read_bytes() == before


def test_appenders_share_fsyncs(yard: Yard, store: EmbeddedStore) -> None:
    """While one fsync is under way others append; one more fsync is enough for all of them."""
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(0))
    with Faults() as faults, ThreadPoolExecutor(20) as pool:
        first = faults.arm("hotlog.before-fsync", "pause")
        leader = pool.submit(store.append, table, B0, rows(1))
        first.wait_reached()
        rest = [pool.submit(store.append, table, B0, rows(n)) for n in range(2, 20)]
        wait_until(lambda: log_of(store, table).end == 20)
        assert not any(f.done() for f in (leader, *rest))
        first.release()
        for future in (leader, *rest):
            future.result(120)
        assert 2 <= faults.seen.count("hotlog.before-fsync") <= 3
    assert sorted(i for _, i in read(store, table)) == list(range(20))


def test_a_put_is_not_answered_before_its_fsync(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    with Faults() as faults, ThreadPoolExecutor(1) as pool:
        pause = faults.arm("hotlog.before-fsync", "pause")
        future = pool.submit(store.append, table, B0, rows(1))
        pause.wait_reached()
        assert not future.done()
        assert store.bounds(table)[B0].end == 0, "not on disk, so nobody sees it"
        pause.release()
        assert future.result(120).stop == 1
    assert store.bounds(table)[B0].end == 1


@pytest.mark.parametrize("policy", ["interval", "never"])
def test_lazy_policies_answer_at_once_and_show_rows_after_an_fsync(
    yard: Yard, store: EmbeddedStore, policy: str
) -> None:
    table = yard.table(properties={"table.log.fsync": policy})
    store.create_table(table)
    store.append(table, B0, rows(1, 2))
    assert store.bounds(table)[B0].end == 0
    store.upkeep.flush()
    assert store.bounds(table)[B0].end == (2 if policy == "interval" else 0)
    assert store.freeze(table)[B0].end == 2
    store.append(table, B0, rows(3))
    assert len(list(store.read_log(table, B0, 0, 3))) == 2, "a read forces its range to disk"
    assert store.bounds(table)[B0].end == 3


def test_readers_do_not_block_writers_nor_wait_for_them(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    for n in range(30):
        store.append(table, B0, rows(n))
    batches = store.read_log(table, B0, 0, 30)
    assert next(batches)["id"].to_pylist() == [0]
    store.append(table, B0, rows(30))
    with Faults() as faults:
        pause = faults.arm("hotlog.before-write", "pause")
        writer = threading.Thread(target=store.append, args=(table, B0, rows(31)))
        writer.start()
        pause.wait_reached()
        assert read(store, table, start=0, stop=31) == [(o, o) for o in range(31)]
        pause.release()
        writer.join(120)
    assert [b["id"][0].as_py() for b in batches] == list(range(1, 30))


def test_a_failed_fsync_is_no_acknowledgement_and_heals(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1))
    with Faults() as faults:
        faults.arm("hotlog.before-fsync", error=lambda: OSError(5, "I/O error"), times=2)
        for _ in range(2):
            with pytest.raises(BucketStopped, match="unknown"):
                store.append(table, B0, rows(2))
    assert store.bounds(table)[B0].end == 1
    store.append(table, B0, rows(3))
    assert [i for _, i in read(store, table)] == [1, 2, 2, 3]


@pytest.mark.parametrize("point", ["hotlog.before-write", "hotlog.roll-files"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_a_write_that_fails_leaves_nothing_and_the_next_one_is_taken(
    yard: Yard, store: EmbeddedStore, point: str, code: int
) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1, text="x" * 3000))
    with Faults() as faults:
        faults.arm(point, error=lambda: OSError(code, "it will pass"))
        with pytest.raises(BucketUnavailable, match=r"it will pass.*tried again") as caught:
            store.append(table, B0, rows(2, text="x" * 3000))
    assert caught.value.retryable
    assert (read(store, table), store.stopped_buckets(table)) == ([(0, 1)], {})
    assert store.append(table, B0, rows(2)).start == 1


def test_waiting_for_rows(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(properties={"table.log.fsync": "never"})
    store.create_table(table)
    assert not store.wait_for(table, {B0: 0}, 0.01)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(store.wait_for, table, {B0: 0}, 20.0)
        store.append(table, B0, rows(1))
        assert future.result(120)
    assert store.bounds(table)[B0].end == 1
    assert not store.wait_for(table, {B0: 1}, 0.0)


def test_readers_beside_writers_rolls_and_uploads(yard: Yard, store: EmbeddedStore) -> None:
    """Whatever moves meanwhile, a range reads as each of its offsets once, in order."""
    table = yard.table(properties={"table.log.fsync": "never"})
    store.create_table(table)
    store.append(table, B0, rows(0, 1))
    ended = threading.Event()

    def write() -> None:
        n = 0
        while n < 400 or (store.sizes()[0].remote_segments <= 3 and n < 20_000):
            n += 1
            store.append(table, B0, rows(2 * n, 2 * n + 1))
        ended.set()

    def move() -> None:
        while not ended.is_set():
            store.upkeep.upload()

    def check() -> int:
        reads = 0
        while not ended.is_set():
            end = store.freeze(table)[B0].end
            assert read(store, table, start=0, stop=end) == [(o, o) for o in range(end)]
            reads += 1
        return reads

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(check) for _ in range(2)]
        for future in (pool.submit(write), pool.submit(move)):
            future.result(120)
        assert all(f.result(120) > 0 for f in readers)
    assert store.upkeep.failures == {}
    assert store.sizes()[0].remote_segments > 3


def test_a_put_of_too_many_rows_is_refused_and_a_stored_one_is_read_in_slices(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(columns={"flag": "BOOLEAN"})
    store.create_table(table)
    store.append(table, B0, pa.record_batch({"flag": pa.array([True])}))
    with pytest.raises(InvalidRequest, match="1,048,577 rows, at most 1,048,576"):
        store.append(table, B0, pa.record_batch({"flag": pa.nulls(MAX_PUT_ROWS + 1, pa.bool_())}))
    count = 2 * READ_ROWS + 9
    log_of(store, table).append(pa.record_batch({"flag": pa.nulls(count, pa.bool_())}))
    log_of(store, table).sync()
    batches = list(store.read_log(table, B0, 3, count - 2))
    assert [b.num_rows for b in batches] == [READ_ROWS, READ_ROWS, count - 5 - 2 * READ_ROWS]
    offsets = [o for b in batches for o in (b.column(OFFSET)[0].as_py(), b.column(OFFSET)[-1].as_py())]
    assert offsets == [3, READ_ROWS + 2, READ_ROWS + 3, 2 * READ_ROWS + 2, 2 * READ_ROWS + 3, count - 3]


def test_a_slice_never_ends_between_the_two_records_of_an_update(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(columns={"id": "BIGINT NOT NULL", "flag": "BOOLEAN"}, primary_key=("id",))
    store.create_table(table)
    keys = pa.array(range(READ_ROWS // 2 + 1), pa.int64())
    for flag in (True, False):
        flags = pa.array([flag] * len(keys))
        store.upsert(table, B0, pa.record_batch({"id": keys, "flag": flags}))
    end = store.freeze(table)[B0].end
    assert [b.num_rows for b in store.read_log(table, B0, len(keys) + 1, end)] == [READ_ROWS + 1]
    batches = list(store.read_log(table, B0, len(keys), end))
    assert [b.num_rows for b in batches] == [READ_ROWS, 2]
    assert {int(b.column(CHANGE_TYPE)[-1].as_py()) for b in batches} == {ChangeType.UPDATE_AFTER}


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_null_inside_a_value_that_forbids_it_is_refused(yard: Yard, store: EmbeddedStore, is_exact: bool) -> None:
    """Also in a batch that has the stored schema to the letter."""
    table = yard.table(columns={"id": "BIGINT", "tags": "ARRAY<INT NOT NULL>"})
    store.create_table(table)
    schema = to_arrow_schema(table.schema)
    tags = pa.array([[1], [2, None]], schema.field("tags").type)
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int64()), tags], schema=schema)
    with pytest.raises(InvalidRows, match=r"row 1.*a null inside"):
        store.append(table, B0, batch if is_exact else batch.select(["tags", "id"]))
