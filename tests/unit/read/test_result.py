# SPDX-License-Identifier: Apache-2.0
"""A read that fails under its caller: it is planned once more while nothing of it was seen, and never after that."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from lakeward.errors import InvalidRequest, LakewardError, ServerUnavailable, SnapshotGone
from lakeward.model import OffsetMap, SnapshotId
from lakeward.read.lease import HeldLease
from lakeward.read.result import ReadBound, ReadResult
from tests.unit.tiering.world import World, make_table

SCHEMA = pa.schema([("id", pa.int64())])
GONE = SnapshotGone(table="shop.t", snapshot="7", advice="read again")
BROKEN = ServerUnavailable(address="127.0.0.1:1", what="a read", reason="connection reset")


def bound_of(snapshot: str) -> ReadBound:
    offsets = OffsetMap()
    return ReadBound(
        table="shop.t",
        mode="union",
        snapshot_id=SnapshotId(snapshot),
        lake_offsets=offsets,
        ends=offsets,
        frozen_at_ms=1,
    )


def rows_then(error: LakewardError | None, *ids: int) -> Iterator[pa.RecordBatch]:
    for number in ids:
        yield pa.record_batch({"id": [number]})
    if error is not None:
        raise error


def result_of(*tries: tuple[LakewardError | None, list[int]]) -> ReadResult:
    """A read of which each try ends so; the snapshot of a bound is the number of its try."""
    lease = HeldLease(World(make_table()).coordinator)
    left = list(enumerate(tries))

    def read() -> ReadResult:
        number, (error, ids) = left.pop(0)
        return ReadResult(SCHEMA, bound_of(str(number)), rows_then(error, *ids), lease, read)

    return read()


@pytest.mark.parametrize("error", [GONE, BROKEN], ids=lambda e: e.code)
def test_a_read_that_fails_before_anything_is_seen_is_planned_again(error: LakewardError) -> None:
    assert result_of((error, []), (None, [1, 2])).to_table().to_pylist() == [{"id": 1}, {"id": 2}]
    result = result_of((error, []), (None, [1]))
    assert [row for batch in result for row in batch.to_pylist()] == [{"id": 1}]
    assert result.bound.snapshot_id == "1"


def test_a_table_is_seen_as_a_whole() -> None:
    assert result_of((GONE, [1, 2]), (None, [3])).to_table().to_pylist() == [{"id": 3}]


@pytest.mark.parametrize("error", [GONE, BROKEN], ids=lambda e: e.code)
def test_what_was_seen_is_never_mixed_with_another_plan(error: LakewardError) -> None:
    rows = iter(result_of((error, [1]), (None, [1, 2])))
    assert next(rows).to_pylist() == [{"id": 1}]
    with pytest.raises(type(error)):
        next(rows)
    bound = result_of((error, []), (None, [1]))
    assert bound.bound.snapshot_id == "0"
    with pytest.raises(type(error)):
        bound.to_table()


def test_it_is_planned_again_once() -> None:
    with pytest.raises(SnapshotGone):
        result_of((GONE, []), (GONE, []), (None, [1])).to_table()


def test_a_read_is_consumed_once() -> None:
    result = result_of((None, [1]))
    result.to_table()
    with pytest.raises(InvalidRequest, match="consumed already"):
        result.to_table()
