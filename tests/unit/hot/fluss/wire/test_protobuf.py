# SPDX-License-Identifier: Apache-2.0
"""Messages against bytes that a real Fluss 0.9.1 sent and took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import InvalidRequest
from lakeward.hot.fluss.wire.messages import FETCH_LOG, HEARTBEAT, LIST_OFFSETS
from lakeward.hot.fluss.wire.protobuf import Shape, decode, encode, integer, integers, raw, text

SHAPE = Shape(
    "Sample",
    (integer("number", 1), text("word", 2), raw("blob", 3), integers("loose", 4), integers("tight", 5, packed=True)),
)


def test_an_empty_heartbeat_has_no_body() -> None:
    assert encode(HEARTBEAT.request, {}) == b""
    assert decode(HEARTBEAT.response, bytes.fromhex("0800")) == {"coordinator_epoch": 0}


def test_a_request_for_a_table_and_its_answer() -> None:
    assert encode(HEARTBEAT.request, {"request_table": True}) == bytes.fromhex("2001")
    answer = decode(HEARTBEAT.response, bytes.fromhex("080012150807120f0a036c6162120870726f62655f706b1801"))
    table = {"table_id": 7, "path": {"database": "lab", "table": "probe_pk"}, "tiering_epoch": 1}
    assert answer == {"coordinator_epoch": 0, "table": table}


def test_negative_numbers_take_the_whole_pattern() -> None:
    body = encode(LIST_OFFSETS.request, {"follower": -1, "kind": 1, "table_id": 5, "buckets": [0, 300]})
    assert body == bytes.fromhex("08ffffffffffffffffff01100118052a0300ac02")
    assert decode(LIST_OFFSETS.request, body) == {"follower": -1, "kind": 1, "table_id": 5, "buckets": [0, 300]}


def test_records_are_a_view_and_not_a_copy() -> None:
    body = encode(FETCH_LOG.response, {"tables": [{"table_id": 1, "buckets": [{"bucket": 0, "records": b"x" * 100}]}]})
    records = decode(FETCH_LOG.response, body)["tables"][0]["buckets"][0]["records"]
    assert isinstance(records, memoryview)
    assert records.obj is body


def test_fields_of_a_newer_server_are_skipped() -> None:
    newer = Shape("Newer", (*SHAPE.fields, integer("more", 30), text("words", 31)))
    body = encode(newer, {"number": 3, "more": 4, "words": "later"})
    assert decode(SHAPE, body + bytes.fromhex("fd0100000000")) == {"number": 3}


@pytest.mark.parametrize("body", ["08", "0a05ab", "08ff", "0b"])
def test_bytes_that_are_no_message_are_refused(body: str) -> None:
    with pytest.raises(InvalidRequest):
        decode(SHAPE, bytes.fromhex(body))


def test_a_field_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidRequest, match="nmber"):
        encode(SHAPE, {"nmber": 1})


NUMBERS = st.integers(-(2**63), 2**63 - 1)


@given(
    number=NUMBERS,
    word=st.text(),
    blob=st.binary(),
    loose=st.lists(NUMBERS, min_size=1),
    tight=st.lists(NUMBERS, min_size=1),
)
def test_what_is_written_reads_back(number: int, word: str, blob: bytes, loose: list[int], tight: list[int]) -> None:
    values = {"number": number, "word": word, "blob": blob, "loose": loose, "tight": tight}
    assert {**(found := decode(SHAPE, encode(SHAPE, values))), "blob": bytes(found["blob"])} == values
