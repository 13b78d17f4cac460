# SPDX-License-Identifier: Apache-2.0
"""Versioned bytes, offset sets, write outcomes, offset maps, buckets and write tokens: each comes back as it
was sent.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import IncompatibleVersion, InvalidRequest, LakeUnavailable, SchemaChanged
from lakeward.model import (
    Bucket,
    OffsetMap,
    OffsetRange,
    OffsetSet,
    Split,
    TableId,
    pack,
    partition_name,
    partition_values,
    split_from_json,
    unpack,
)
from lakeward.protocol.readplan import WriteToken
from lakeward.tiering.work.outcome import WriteOutcome
from tests.property.strategies import BUCKETS, OFFSET_MAPS, OFFSETS, PARTITION_VALUES, SPLITS, TEXT

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OFFSET_SETS = st.lists(OFFSETS, max_size=50).map(OffsetSet)
ERRORS = st.sampled_from(
    [
        LakeUnavailable(lake="l", what="w", reason="r"),
        SchemaChanged(table="db.t", offset=3, batch_schema=2, planned_schema=1),
    ]
)


@given(TEXT, st.integers(0, 9), st.dictionaries(TEXT, JSON, max_size=4), st.lists(st.binary(max_size=64), max_size=3))
def test_versioned_bytes(kind: str, version: int, body: dict[str, Any], blobs: list[bytes]) -> None:
    assert unpack(kind, 9, pack(kind, version, body, blobs)) == (version, body, blobs)


@given(st.binary(max_size=80))
def test_any_other_bytes_are_refused_in_words(data: bytes) -> None:
    for given_bytes in (data, b"LWV1" + data):
        with pytest.raises(InvalidRequest):
            unpack("thing", 1, given_bytes)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_cut_or_changed_packet_is_refused(at: int, flip: int) -> None:
    packet = pack("thing", 1, {"count": 12}, [b"abc", b"defg"])
    changed = bytearray(packet)
    changed[at % len(packet)] ^= flip
    for damaged in (packet[: at % len(packet)], bytes(changed), packet + b"x"):
        with pytest.raises(InvalidRequest):
            unpack("thing", 1, damaged)


def test_a_newer_version_and_another_kind_are_refused() -> None:
    with pytest.raises(IncompatibleVersion) as raised:
        unpack("thing", 1, pack("thing", 2, {}))
    assert (raised.value.theirs, raised.value.ours) == ("2", "1")
    with pytest.raises(InvalidRequest, match="other"):
        unpack("thing", 1, pack("other", 1, {}))


@given(st.lists(OFFSETS, max_size=60), st.lists(OFFSETS, max_size=60), OFFSETS)
def test_an_offset_set_behaves_like_a_set(first: list[int], second: list[int], bound: int) -> None:
    a, b = OffsetSet(first), OffsetSet(second)
    assert OffsetSet.from_bytes(a.to_bytes()) == a
    assert set(a.union(b).values.tolist()) == {*first, *second}
    assert set(a.minus(b).values.tolist()) == {*first} - {*second}
    assert a.below(bound).values.tolist() == sorted(o for o in {*first} if o < bound)
    assert a.mask(np.array(second, np.int64)).tolist() == [o in {*first} for o in second]
    assert a.rank(a.values).tolist() == list(range(len(a)))


@given(OFFSET_SETS, st.integers(0, 10_000), st.integers(1, 255))
def test_a_damaged_offset_set_is_refused(offsets: OffsetSet, at: int, flip: int) -> None:
    data = bytearray(offsets.to_bytes())
    data[at % len(data)] ^= flip
    with pytest.raises(InvalidRequest):
        OffsetSet.from_bytes(bytes(data))


@given(SPLITS)
def test_a_split_survives_json(split: Split) -> None:
    assert split_from_json(json.loads(json.dumps(split.to_json()))) == split


@given(
    st.builds(
        WriteOutcome,
        split=SPLITS,
        stop=OFFSETS,
        attempt=st.integers(0, 9),
        result=st.none() | st.binary(max_size=30),
        replaced=OFFSET_SETS,
        rows=st.integers(0, 2**40),
        bytes_read=st.integers(0, 2**50),
        seconds=st.floats(0, 1e6),
    ),
    st.none() | ERRORS,
)
def test_a_write_outcome_survives_bytes(outcome: WriteOutcome, error: LakeUnavailable | SchemaChanged | None) -> None:
    assert WriteOutcome.from_bytes(outcome.to_bytes()) == outcome
    failed = WriteOutcome(split=outcome.split, stop=outcome.stop, error=error)
    back = WriteOutcome.from_bytes(failed.to_bytes())
    assert type(back.error) is type(error)
    assert (back.error and back.error.facts) == (error and error.facts)
    assert back.is_ok == (error is None)


def test_a_task_of_another_version_is_refused() -> None:
    """Nothing stores these bytes: driver and tasks of one job run one version."""
    kind, version = WriteOutcome.packed_as
    for other in (version - 1, version + 1):
        with pytest.raises(IncompatibleVersion):
            WriteOutcome.from_bytes(pack(kind, other, {"stop": 1}))


@given(OFFSET_MAPS)
def test_an_offset_map_survives_json_and_a_token_its_text(offsets: OffsetMap) -> None:
    assert OffsetMap.from_json(json.loads(json.dumps(offsets.to_json()))) == offsets
    token = WriteToken(table_id=TableId("t-1"), offsets=offsets)
    assert WriteToken.parse(str(token)) == token


@given(st.text(max_size=60))
def test_any_other_text_is_no_token(text: str) -> None:
    with pytest.raises(InvalidRequest):
        WriteToken.parse(text)


@given(BUCKETS)
def test_a_bucket_survives_its_text(bucket: Bucket) -> None:
    assert Bucket.parse(str(bucket)) == bucket


@pytest.mark.parametrize("text", ["", "x", "-1", "p/", "/", "²", "1.0", "p/٣"])
def test_any_other_text_is_no_bucket(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Bucket.parse(text)


@given(st.lists(PARTITION_VALUES, min_size=1, max_size=3))
def test_a_partition_name_gives_its_values_back(values: list[str]) -> None:
    assert partition_values(partition_name(values)) == tuple(values)


@pytest.mark.parametrize("value", ["", "a$b", "a/b", "..", ".", "a\\b", "a\x00"])
def test_partition_values_that_could_not_be_a_folder_are_refused(value: str) -> None:
    with pytest.raises(InvalidRequest):
        partition_name([value])


@given(OFFSET_MAPS, OFFSET_MAPS)
def test_raising_never_lowers_and_regressions_say_what_would(held: OffsetMap, other: OffsetMap) -> None:
    raised = held.raised(other)
    assert not held.regressions(raised)
    assert not other.regressions(raised)
    assert set(held.regressions(other)) == {b for b in held if other.get(b, -1) < held[b]}
    assert held.overlaid(other) == OffsetMap({**held, **other})


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2)])
def test_a_range_is_in_order(start: int, stop: int) -> None:
    with pytest.raises(InvalidRequest):
        OffsetRange(start, stop)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"version": 2, "offsets": {}},
        {"version": 1, "offsets": {"": [[0]]}},
        {"version": 1, "offsets": {"": [[0, -1]]}},
        {"version": 1, "offsets": {"": [["x", 1]]}},
        {"version": 1, "offsets": {"": 5}},
    ],
)
def test_an_offset_map_that_was_tampered_with_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        OffsetMap.from_json(body)
