# SPDX-License-Identifier: Apache-2.0
"""Sequences of writers: what is due, what was here before, what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from lakeward.errors import InvalidRequest, OutOfSequence, WriterForgotten
from lakeward.hot.embedded.log.writers import (
    BUSY_WRITER_MS,
    KEPT,
    MAX_SEQUENCE,
    REMEMBERED,
    Appended,
    WriterSequence,
    WriterTable,
)
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket
from lakeward.protocol.flight import MAX_UNDER_WAY
from tests.unit.hot.embedded.yard import B0, Yard, read, rows


def test_a_retried_put_is_answered_with_its_first_offsets(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(buckets=2)
    store.create_table(table)
    put = store.append(table, B0, rows(1, 2), WriterSequence(9, 0))
    store.append(table, B0, rows(3), WriterSequence(9, 1))
    retried = store.append(table, B0, rows(1, 2), WriterSequence(9, 0))
    assert (retried.start, retried.stop, retried.duplicate) == (put.start, put.stop, True)
    assert store.append(table, Bucket("", 1), rows(4), WriterSequence(9, 0)).start == 0, (
        "each bucket has sequences of its own"
    )
    assert [i for _, i in read(store, table)] == [1, 2, 3]


def test_a_put_without_rows_keeps_the_sequence_and_takes_an_offset(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    put = store.append(table, B0, rows(), WriterSequence(9, 0))
    assert (put.start, put.stop) == (0, 1)
    assert store.append(table, B0, rows(5), WriterSequence(9, 1)).start == 1
    assert read(store, table) == [(1, 5)]


@pytest.mark.parametrize("sequence", [1, 5])
def test_a_gap_is_refused(yard: Yard, store: EmbeddedStore, sequence: int) -> None:
    table = yard.table()
    store.create_table(table)
    with pytest.raises(OutOfSequence):
        store.append(table, B0, rows(1), WriterSequence(9, sequence))
    assert store.freeze(table)[B0].end == 0


def test_concurrent_retries_of_one_put_land_once(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: store.append(table, B0, rows(1, 2), WriterSequence(3, 0)), range(8)))
    assert {(a.start, a.stop) for a in answers} == {(0, 2)}
    assert sum(not a.duplicate for a in answers) == 1


def test_whatever_a_client_may_have_under_way_can_be_sent_again(yard: Yard, store: EmbeddedStore) -> None:
    """All of it to one bucket, stored, and none of it acknowledged when the connection broke."""
    table = yard.table()
    store.create_table(table)
    first = [store.append(table, B0, rows(n, n + 1), WriterSequence(7, n)) for n in range(MAX_UNDER_WAY + 8)]
    again = [store.append(table, B0, rows(n, n + 1), WriterSequence(7, n)) for n in range(8, MAX_UNDER_WAY + 8)]
    assert all(a.duplicate for a in again)
    assert [(a.start, a.stop) for a in again] == [(a.start, a.stop) for a in first[8:]]


def test_old_puts_are_forgotten_and_sequences_wrap() -> None:
    table = WriterTable("0")
    for n in range(REMEMBERED + 2):
        table.record(1, n, Appended(n, n + 1, n))
    assert table.find(WriterSequence(1, REMEMBERED + 2)) is None
    assert table.find(WriterSequence(1, 2)) == Appended(2, 3, 2, duplicate=True)
    with pytest.raises(OutOfSequence):
        table.find(WriterSequence(1, 1))
    table.record(2, MAX_SEQUENCE, Appended(50, 51, 50))
    assert table.find(WriterSequence(2, 0)) is None


def test_silent_writers_are_forgotten() -> None:
    table = WriterTable("0")
    table.record(1, 0, Appended(0, 1, 1000))
    table.record(2, 0, Appended(1, 2, 2000))
    table.forget_before(1500)
    assert len(table) == 1
    assert table.find(WriterSequence(1, 0)) is None
    again = WriterTable("0")
    again.load(table.to_json())
    assert again.find(WriterSequence(2, 0)) == Appended(1, 2, 2000, duplicate=True)


def test_many_writers_that_wrote_once_are_forgotten_when_they_cannot_send_again() -> None:
    table = WriterTable("0")
    table.record(1, 0, Appended(0, 1, 0))
    for n in range(2, KEPT + 50):
        table.record(n, 0, Appended(n, n + 1, n))
    table.forget_surplus(BUSY_WRITER_MS)
    assert len(table) == KEPT + 49, "the first of them may still send again"
    table.forget_surplus(BUSY_WRITER_MS + 10)
    assert len(table) == KEPT + 40, "nine were silent long enough"
    table.forget_surplus(10 * BUSY_WRITER_MS)
    assert len(table) == KEPT
    assert table.find(WriterSequence(KEPT + 49, 0)) is not None, "the newest are known"
    with pytest.raises(OutOfSequence):
        table.find(WriterSequence(1, 1))


def test_upkeep_forgets_writers_that_are_gone(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(0), WriterSequence(0, 0))
    bucket = store.hot_table(table).find_bucket(B0)
    assert bucket is not None
    for n in range(1, KEPT + 10):  # as so many puts would, at a thousandth of the cost
        bucket.log._writers.record(n, 0, Appended(n, n + 1, yard.clock.now_ms()))
    yard.clock.advance(2 * BUSY_WRITER_MS / 1000)
    store.append(table, B0, rows(0), WriterSequence(99_999, 0))
    store.upkeep.tend_files()
    with pytest.raises(OutOfSequence):
        store.append(table, B0, rows(0), WriterSequence(0, 1))
    assert store.append(table, B0, rows(0), WriterSequence(99_999, 1)).stop == 3


def test_a_first_put_sent_again_after_its_writer_may_be_forgotten_is_refused_and_not_doubled(
    yard: Yard, store: EmbeddedStore
) -> None:
    """A client may be told to try for longer than writers are remembered."""
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(0), WriterSequence(0, 0))
    begun_ms, bucket = yard.clock.now_ms(), store.hot_table(table).find_bucket(B0)
    assert bucket is not None
    for n in range(1, KEPT + 10):  # as so many puts would, at a thousandth of the cost
        bucket.log._writers.record(n, 0, Appended(n, n + 1, begun_ms))
    yard.clock.advance(2 * BUSY_WRITER_MS / 1000)
    store.append(table, B0, rows(1), WriterSequence(99_999, 0))
    store.upkeep.tend_files()
    age_ms = yard.clock.now_ms() - begun_ms
    with pytest.raises(WriterForgotten, match="1200 s ago"):
        store.append(table, B0, rows(0), WriterSequence(0, 0, age_ms))
    store.close()
    again = yard.open()
    with pytest.raises(WriterForgotten):
        again.append(table, B0, rows(0), WriterSequence(0, 0, age_ms))
    later = WriterSequence(5, 0, age_ms // 2)
    assert again.append(table, B0, rows(2), later).start == 2, "none of that time is forgotten"
    assert [i for _, i in read(again, table)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("writer", "sequence", "age"), [(-1, 0, 0), (2**63, 0, 0), (1, -1, 0), (1, 2**31, 0), (1, 0, -1)]
)
def test_impossible_writers_are_refused(writer: int, sequence: int, age: int) -> None:
    with pytest.raises(InvalidRequest):
        WriterSequence(writer, sequence, age)
