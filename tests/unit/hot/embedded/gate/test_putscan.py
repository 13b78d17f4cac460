# SPDX-License-Identifier: Apache-2.0
"""Batches in puts' messages: known by what they unpack to, wherever their bytes are cut."""

from __future__ import annotations

import io
import itertools
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.hot.embedded.gate.frames import DATA, HEADERS
from lakeward.hot.embedded.gate.inward import Inward
from lakeward.hot.embedded.gate.putscan import Oversized, PutScan
from tests.unit.hot.embedded.gate.conversation import GREETING, call, data, hear, rules, varint

LIMIT = 10_000
HERE = "192.0.2.7:4711"


def parts(tag: int, payload: bytes) -> bytes:
    return varint(tag) + varint(len(payload)) + payload


def flight_data(batch: pa.RecordBatch, codec: str | None, metadata: bytes = b"{}") -> list[bytes]:
    """The messages that a Flight client would send for it, its schema first."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    reader, messages = pa.ipc.MessageReader.open_stream(sink.getvalue()), []
    for message in reader:
        body = b"" if message.body is None else parts(8002, message.body.to_pybytes())
        messages.append(parts(0x12, message.metadata.to_pybytes()) + parts(0x1A, metadata) + body)
    return messages


def zeros(count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array([0] * count, pa.int64()), "name": pa.array(["x"] * count)})


def scan(message: bytes, cuts: list[int], limit: int = LIMIT) -> str | None:
    """Why it is refused, if it is."""
    scan, at = PutScan(len(message), limit), sorted({0, len(message), *(cut % len(message) for cut in cuts)})
    for start, stop in itertools.pairwise(at):
        try:
            scan.feed(memoryview(message)[start:stop])
        except Oversized as error:
            return str(error)
        if scan.is_done:
            break
    return None


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@given(cuts=st.lists(st.integers(0, 20_000), max_size=40))
def test_what_a_batch_unpacks_to_decides(codec: str, cuts: list[int]) -> None:
    *_, small = flight_data(zeros(400), codec)
    *_, large = flight_data(zeros(1_000), codec)
    assert len(large) < LIMIT
    assert scan(small, cuts) is None
    assert "unpacks to more than" in str(scan(large, cuts))


def test_what_is_not_compressed_is_known_by_its_message_alone() -> None:
    for message in flight_data(zeros(10_000), None):
        assert scan(message, []) is None


def test_dictionaries_are_batches_too() -> None:
    words = pa.record_batch({"d": pa.array([f"{n % 7}" * 900 for n in range(50)]).dictionary_encode()})
    answers = [scan(message, []) for message in flight_data(words, "zstd")]
    assert [answer is None for answer in answers] == [True, True, True]
    assert "unpacks to" in str(scan(flight_data(words, "zstd")[1], [], limit=5_000))


def test_one_buffer_in_many_places_counts_each_time() -> None:
    message = bytearray(flight_data(zeros(400), "zstd")[-1])
    layouts = [i for i in range(len(message) - 80) if struct.unpack_from("<I", message, i)[0] == 5]
    at = next(i for i in layouts if struct.unpack_from("<q", message, i + 4)[0] == 0) + 4
    longest = max((struct.unpack_from("<qq", message, at + 16 * n) for n in range(5)), key=lambda pair: pair[1])
    for n in range(5):
        struct.pack_into("<qq", message, at + 16 * n, *longest)
    assert scan(flight_data(zeros(400), "zstd")[-1], [], limit=6_000) is None
    assert "unpacks to" in str(scan(bytes(message), [], limit=6_000))


@pytest.mark.parametrize(
    ("order", "why"),
    [("BH", "follows the body"), ("HBH", "follows the body"), ("HH", "order"), ("MH", "order"), ("X", "order")],
)
def test_a_header_that_could_hide_is_refused(order: str, why: str) -> None:
    """Arrow takes the last header that it finds, also one behind the body."""
    header, body = flight_data(zeros(400), None)[0], parts(8002, bytes(100))
    pieces = {"H": header[: header.index(b"\x1a\x02{}")], "B": body, "M": parts(0x1A, b"{}"), "X": parts(0x22, b"x")}
    assert why in str(scan(b"".join(pieces[name] for name in order), []))


@given(st.lists(st.tuples(st.integers(2, 230), st.integers(0, 255)), max_size=8))
def test_a_broken_header_is_refused_or_known(changes: list[tuple[int, int]]) -> None:
    message = bytearray(flight_data(zeros(400), "zstd")[-1])
    for at, byte in changes:
        message[at] = byte
    scan(bytes(message), [])


def test_a_header_that_comes_in_crumbs_is_read() -> None:
    """A megabyte in pieces of a hundred bytes."""
    message = parts(0x1A, bytes(1 << 20)) + parts(8002, b"x")
    assert scan(message, list(range(0, len(message), 100))) is None
    assert "more than" in str(scan(varint(0x1A) + varint(5 << 20) + b"x", []))


@pytest.mark.parametrize("skipping", [False, True])
@given(cuts=st.lists(st.integers(0, 20_000), max_size=30), frame_size=st.integers(20, 5_000))
def test_a_put_stream_passes_or_ends(skipping: bool, cuts: list[int], frame_size: int) -> None:
    """Through the parser: frames of any size, cut anywhere."""
    good = flight_data(zeros(400), "zstd") + flight_data(zeros(400), None)[1:]
    bomb = flight_data(zeros(2_000), "zstd")[1]
    for messages, is_taken in ((good, True), ([*good, bomb], False)):
        whole = b"".join(b"\0" + len(m).to_bytes(4, "big") + m for m in messages)
        framed = [data(1, whole[at : at + frame_size]) for at in range(0, len(whole), frame_size)]
        raw = GREETING + call(1, "DoPut") + b"".join(framed)
        at = sorted({0, len(raw), *(cut % len(raw) for cut in cuts)})
        pieces = [raw[a:b] for a, b in itertools.pairwise(at)]
        heard = hear(Inward(rules(batch_bytes=LIMIT), HERE), pieces, skipping)
        passed = b"".join(payload for kind, _, _, payload in heard.passed if kind == DATA)
        assert [told[0] for told in heard.told if told[0] == HEADERS] == ([] if is_taken else [HEADERS])
        assert whole.startswith(passed)
        assert (passed == whole) == is_taken
        assert len(passed) + heard.credit == len(whole)
