# SPDX-License-Identifier: Apache-2.0
"""Messages against bytes that a real Fluss 0.9.1 sent and took."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import InvalidRequest
from lakeward.hot.fluss.wire.messages import HEARTBEAT, LIST_OFFSETS, decode, encode
from tests.kit.fluss import ddl_pb2

SHAPE = ddl_pb2.Sample
ROOT = Path(__file__).parents[5]


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


def test_fields_of_a_newer_server_are_skipped() -> None:
    body = encode(ddl_pb2.NewerSample, {"number": 3, "more": 4, "words": "later"})
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
    assert decode(SHAPE, encode(SHAPE, values)) == values


@pytest.mark.parametrize(
    ("root", "proto"), [("src", "lakeward/hot/fluss/wire/rpc.proto"), (".", "tests/kit/fluss/ddl.proto")]
)
def test_the_generated_code_is_of_today(root: str, proto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert protoc.main(["protoc", f"-I{root}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", proto]) == 0
    for ending in ("_pb2.py", "_pb2.pyi"):
        name = proto.replace(".proto", ending)
        assert (tmp_path / name).read_text() == (ROOT / root / name).read_text(), "run `make generate`"
