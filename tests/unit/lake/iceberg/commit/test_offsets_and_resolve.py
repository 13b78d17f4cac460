# SPDX-License-Identifier: Apache-2.0
"""Offset sets beside files, and positions from offsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from lakeward.errors import InvalidRequest
from lakeward.lake.iceberg.commit.resolve import Candidate, resolve
from lakeward.lake.iceberg.datafile.offsetcache import (
    decode_offsets,
    encode_offsets,
    find_cache,
    join_encoded,
    positions_of,
    write_cache,
)
from lakeward.lake.iceberg.datafile.result import WriteResult, WrittenFile
from lakeward.lake.iceberg.meta.location import cache_path, canonical, data_name, round_prefix
from lakeward.model import Bucket, LogSplit, OffsetRange, OffsetSet, new_round_id

offset_sets = st.sets(st.integers(0, 2**40) | st.integers(0, 300), max_size=60).map(sorted)


@given(offset_sets)
def test_offsets_survive_encoding(offsets: list[int]) -> None:
    values = np.array(offsets, np.int64)
    assert decode_offsets(encode_offsets(values)).values.tolist() == offsets


@given(offset_sets, st.integers(1, 7))
def test_parts_are_one_set(offsets: list[int], size: int) -> None:
    parts = [encode_offsets(np.array(offsets[i : i + size], np.int64)) for i in range(0, len(offsets), size)]
    if parts:
        assert decode_offsets(join_encoded(parts)).values.tolist() == offsets


def test_a_dense_set_is_small() -> None:
    assert len(encode_offsets(np.arange(10**6, dtype=np.int64))) < 1_000


@given(st.permutations(range(12)) | st.lists(st.integers(0, 11)), st.sets(st.integers(0, 14)))
def test_positions_in_any_order_and_of_rows_that_are_there_twice(column: list[int], wanted: set[int]) -> None:
    mask, positions = positions_of(np.array(column, np.int64), np.array(sorted(wanted), np.int64))
    assert mask.tolist() == [w in column for w in sorted(wanted)]
    assert sorted(positions) == [at for at, offset in enumerate(column) if offset in wanted]


@pytest.mark.parametrize("damage", ["missing", "torn", "flipped", "of another file", "garbage"])
def test_a_bad_cache_is_no_cache(tmp_path: Path, damage: str) -> None:
    io, path = PyArrowFileIO({}), f"file://{tmp_path}/lw-x.parquet"
    encoded = encode_offsets(np.array([3, 5, 9], np.int64))
    write_cache(io, path, encoded)
    file = tmp_path / "lw-x.parquet.offsets"
    assert cache_path(path).endswith("lw-x.parquet.offsets")
    kept = find_cache(io, path, 3)
    assert kept is not None
    assert kept.values.tolist() == [3, 5, 9]
    match damage:
        case "missing":
            file.unlink()
        case "torn":
            file.write_bytes(encoded[:-2])
        case "flipped":
            file.write_bytes(encoded[:-1] + bytes([encoded[-1] ^ 1]))
        case "garbage":
            file.write_bytes(b"\x00" * 40)
    assert find_cache(io, path, 4 if damage == "of another file" else 3) is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where a folder would be")
    write_cache(PyArrowFileIO({}), f"file://{tmp_path}/taken/lw-x.parquet", b"x")


def candidate(name: str, offsets: list[int], bucket: Bucket | None, bounds: bool = True) -> Candidate:
    file = DataFile.from_args(file_path=name, partition=Record(0))
    column = np.array(offsets, np.int64)
    first, last = (min(offsets), max(offsets)) if bounds else (None, None)
    return Candidate(file, 0, bucket, first, last, lambda: column)


def test_resolve_looks_in_every_file_that_may_hold_an_offset() -> None:
    one, two = Bucket("", 0), Bucket("", 1)
    files = [
        candidate("a", [0, 1, 2, 7], one),
        candidate("shuffled", [9, 3, 5], one),
        candidate("other bucket", [0, 1, 2], two),
        candidate("no bucket", [20, 30], None, bounds=False),
    ]
    found = resolve({one: OffsetSet([1, 5, 7, 30, 99]), two: OffsetSet([2])}, files)
    assert {h.file.file_path: h.positions.tolist() for h in found.hits} == {
        "a": [1, 3],
        "shuffled": [2],
        "other bucket": [2],
        "no bucket": [1],
    }
    assert {b: o.values.tolist() for b, o in found.missing.items()} == {one: [99]}
    assert found.count == 5


def test_a_result_travels_as_bytes() -> None:
    offsets = encode_offsets(np.array([4, 6], np.int64))
    file = WrittenFile(
        path="file:///x",
        record_count=2,
        size_bytes=10,
        first_offset=4,
        last_offset=6,
        value_counts={1: 2},
        lower_bounds={1: b"\x00\xff"},
        split_offsets=[4],
        sort_order_id=1,
        offsets=offsets,
    )
    result = WriteResult(bucket=Bucket("eu", 3), schema_id=0, files=(file,))
    assert WriteResult.from_bytes(result.to_bytes()) == result
    with pytest.raises(InvalidRequest):
        WriteResult.from_bytes(b"nonsense")


def test_names_carry_round_split_and_attempt() -> None:
    round_id = new_round_id()
    split = LogSplit(bucket=Bucket("a/ü b", 3), range=OffsetRange(7, 9), index=2)
    first, second = (data_name(round_id, split, 5, 1) for _ in range(2))
    assert first.startswith(round_prefix(round_id))
    assert "-l7.2-5-1-" in first
    assert "/" not in first
    assert first != second


@pytest.mark.parametrize("path", ["file:/a/b", "file:///a/b", "/a/b"])
def test_one_spelling_per_local_file(path: str) -> None:
    assert canonical(path) == "file:///a/b"


def test_one_spelling_per_object() -> None:
    assert canonical("s3a://b/k") == canonical("s3://b/k") == "s3://b/k"
