# SPDX-License-Identifier: Apache-2.0
"""What of a client's bytes reaches the Flight server, and what the client is told."""

from __future__ import annotations

import base64
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import InvalidRequest, LakewardError, QuotaExceeded, Unauthorized, from_wire
from lakeward.hot.embedded.gate.callcount import CallCount
from lakeward.hot.embedded.gate.frames import (
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Misbehaved,
    frame,
    reset,
)
from lakeward.hot.embedded.gate.headerblock import HeaderReader, write_fields
from lakeward.hot.embedded.gate.inward import Inward
from lakeward.hot.embedded.gate.outward import Outward
from lakeward.hot.embedded.gate.rules import BESIDE_BATCH, PEER
from tests.unit.hot.embedded.gate.conversation import (
    GREETING,
    Frame,
    call,
    call_fields,
    data,
    frames,
    hear,
    message,
    rules,
)

TOKENS = ("ann:write:top",)
HERE = "192.0.2.7:4711"


def new(*tokens: str) -> Inward:
    return Inward(rules(tokens), HERE)


def more(inward: Inward, raw: bytes) -> list[int]:
    """The kinds of frames that pass of what is said later."""
    inward.take(memoryview(raw))
    passed, inward.out, inward.back = b"".join(inward.out), [], []
    return [kind for kind, *_ in frames(passed)]


def said(told: Frame) -> LakewardError:
    fields = dict(HeaderReader().read(told[3]))
    assert (told[0], told[1]) == (HEADERS, END_STREAM | END_HEADERS)
    raw = fields[b"grpc-status-details-bin"]
    return from_wire(json.loads(base64.b64decode(raw + b"=" * (-len(raw) % 4))))


def test_a_call_passes_with_its_peer_and_without_a_forged_one() -> None:
    forged = (PEER, b"10.0.0.1:1")
    heard = hear(new(*TOKENS), [GREETING + call(1, "DoGet", "top", forged) + data(1, message(20), END_STREAM)])
    settings, headers, ticket = heard.passed
    assert settings == (SETTINGS, 0, 0, b"")
    assert HeaderReader().read(headers[3]) == [*call_fields("DoGet", "top"), (PEER, HERE.encode())]
    assert ticket == (DATA, END_STREAM, 1, message(20))
    assert heard.told == []


def test_calls_of_a_token_are_counted_on_all_its_connections() -> None:
    """What is too much is refused before the server has a thread of it; the connection and its calls stay."""
    calls = CallCount(per_token=3)
    first, second = (Inward(rules(TOKENS), HERE, calls=calls) for _ in range(2))
    opened = hear(first, [GREETING + call(1, "DoPut", "top") + call(3, "DoPut", "top")])
    assert [kind for kind, *_ in opened.passed] == [SETTINGS, HEADERS, HEADERS]
    many = GREETING + b"".join(call(n, "DoPut", "top") for n in range(1, 401, 2))
    heard = hear(second, [many])
    assert [(kind, stream) for kind, _, stream, _ in heard.passed] == [(SETTINGS, 0), (HEADERS, 1)]
    assert isinstance(said(heard.told[0]), QuotaExceeded)
    first.close()
    assert more(second, call(401, "DoPut", "top")) == [HEADERS]
    second.finish(1)
    second.finish(401)
    assert more(second, b"".join(call(n, "DoPut", "top") for n in (403, 405, 407, 409))) == [HEADERS] * 3


def test_calls_that_are_taken_back_at_once_are_not_taken_for_ever() -> None:
    now = [0.0]
    calls = CallCount(clock=lambda: now[0])

    def rapid(first: int, count: int) -> bytes:
        return b"".join(call(n, "DoGet", "top") + reset(n, CANCEL) for n in range(first, first + 2 * count, 2))

    inward = Inward(rules(TOKENS), HERE, calls=calls)
    assert len(hear(inward, [GREETING + rapid(1, 500)]).passed) == 1001
    with pytest.raises(Misbehaved, match="taken back"):
        inward.take(memoryview(rapid(1001, 5)))
    with pytest.raises(Misbehaved, match="taken back"):  # the same host on another connection
        Inward(rules(TOKENS), "192.0.2.7:4712", calls=calls).take(memoryview(GREETING + call(1, "DoGet", "top")))
    other = Inward(rules(TOKENS), "192.0.2.8:1", calls=calls)
    assert len(hear(other, [GREETING + rapid(1, 100)]).passed) == 201
    now[0] = 1.0
    again = Inward(rules(TOKENS), HERE, calls=calls)
    assert len(hear(again, [GREETING + rapid(1, 40)]).passed) == 81, "a second is good for fifty"


@pytest.mark.parametrize("secret", [None, "", "wrong"])
def test_without_a_token_nothing_passes_and_the_client_is_told(secret: str | None) -> None:
    inward = new(*TOKENS)
    heard = hear(inward, [GREETING + call(1, "DoPut", secret) + data(1, message(900)) + call(3, "DoPut", "top")])
    assert [(kind, stream) for kind, _, stream, _ in heard.passed] == [(SETTINGS, 0), (HEADERS, 3)]
    assert isinstance(said(heard.told[0]), Unauthorized)
    assert heard.told[1][:3] == (RST_STREAM, 0, 1)
    assert heard.credit == len(message(900)), "what the client sent is given back to it"
    assert [method for method, _ in inward.refusals] == ["DoPut"]


@pytest.mark.parametrize(
    ("method", "sizes", "is_taken"),
    [
        ("DoGet", [100], True),
        ("DoGet", [101], False),
        ("DoGet", [10, 10], False),
        ("DoAction", [101], False),
        ("ListFlights", [4_000_000], False),
        ("DoExchange", [101], False),
        ("DoPut", [5, 1000 + BESIDE_BATCH, 5], True),
        ("DoPut", [5, 1001 + BESIDE_BATCH], False),
    ],
)
def test_a_message_is_known_by_its_length_before_it_passes(method: str, sizes: list[int], is_taken: bool) -> None:
    sent = [message(size, filled=is_taken or number + 1 < len(sizes)) for number, size in enumerate(sizes)]
    heard = hear(new(), [GREETING + call(1, method) + data(1, b"".join(sent))])
    passed = b"".join(payload for kind, _, _, payload in heard.passed if kind == DATA)
    if is_taken:
        assert passed == b"".join(sent)
        assert heard.told == []
        return
    assert passed == b"".join(sent[:-1])
    assert isinstance(said(heard.told[0]), InvalidRequest)
    assert heard.passed[-1] == (RST_STREAM, 0, 1, (8).to_bytes(4, "big"))
    assert heard.credit == len(sent[-1])


def test_a_message_that_grpc_would_unpack_is_refused() -> None:
    heard = hear(new(), [GREETING + call(1, "DoGet") + data(1, message(20, packed=1))])
    assert "compression" in str(said(heard.told[0]))


def test_messages_of_one_frame_pass_in_pieces_and_end_once() -> None:
    sent = GREETING + call(1, "DoPut") + data(1, message(5) + message(7) + message(9), END_STREAM)
    heard = hear(new(), [sent[n : n + 1] for n in range(len(sent))])
    assert heard.passed[-1] == (DATA, END_STREAM, 1, message(5) + message(7) + message(9))


def test_headers_in_pieces_padded_and_with_a_priority() -> None:
    block = write_fields(call_fields("DoGet"))
    padded = b"\x03" + b"\0\0\0\0\x10" + block[:10] + b"pad"
    first, rest = frame(HEADERS, PADDED | 0x20 | END_STREAM, 1, padded), frame(CONTINUATION, END_HEADERS, 1, block[10:])
    heard = hear(new(), [GREETING + first + rest])
    assert HeaderReader().read(heard.passed[1][3])[:-1] == call_fields("DoGet")
    assert heard.passed[1][1] == END_HEADERS | END_STREAM


def test_frames_of_calls_that_are_over_do_not_pass() -> None:
    inward = new()
    began = hear(inward, [GREETING + call(1, "DoPut") + data(1, message(5))])
    assert len(began.passed) == 3
    Outward(inward).take(memoryview(frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x88")))
    late = data(1, message(50)) + reset(1, 8) + frame(WINDOW_UPDATE, 0, 1, bytes(4)) + frame(PING, 0, 0, bytes(8))
    out = inward.take(memoryview(late))
    assert out == len(late)
    assert frames(b"".join(inward.out)) == [(PING, 0, 0, bytes(8))]
    assert inward.back == [frame(WINDOW_UPDATE, 0, 0, (55).to_bytes(4, "big"))]


FLOOD = frame(CONTINUATION, 0, 1, b"x" * 100)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "no HTTP/2"),
        (b"\x16\x03\x01", "no HTTP/2"),
        (PREFACE + bytes([0xFF] * 40), "kind 255"),
        (GREETING + frame(HEADERS, 0, 1, b"") + FLOOD * 100, "too many pieces"),
        (GREETING + frame(HEADERS, 0, 1, b"") + frame(PING, 0, 0, bytes(8)), "not whole"),
        (GREETING + FLOOD, "did not begin"),
        (GREETING + frame(HEADERS, 0, 1, bytes(33 * 1024)), "33792 bytes"),
        (GREETING + frame(HEADERS, PADDED, 1, b"\x09abc"), "shorter than"),
        (GREETING + frame(HEADERS, END_HEADERS, 1, b"\x40\x01a\x7f\x81\x1e" + bytes(3968) + b"\xbe" * 99), "over"),
        (GREETING + call(2, "DoGet"), "cannot be opened"),
        (GREETING + call(3, "DoGet") + call(1, "DoGet"), "cannot be opened"),
        (GREETING + call(1, "DoGet") + call(1, "DoGet"), "cannot be opened"),
        (GREETING + data(1, b"x"), "not opened"),
        (GREETING + call(1, "DoGet") + data(1, message(1), END_STREAM) + data(1, b"x"), "behind its end"),
        (GREETING + call(1, "DoGet") + frame(DATA, PADDED, 1, b"\0x"), "padded"),
        (GREETING + frame(5, 0, 1, bytes(4)), "push"),
        (GREETING + frame(PING, 0, 0, bytes(8)) * 60, "no call"),
        (GREETING + b"".join(call(1 + 2 * n, "DoGet") for n in range(1001)), "1000 calls"),
    ],
)
def test_who_misbehaves_is_let_go(raw: bytes, why: str) -> None:
    fault = hear(Inward(rules(), HERE, calls=CallCount(per_token=2000)), [raw]).fault
    assert fault is not None
    assert why in fault


def test_who_is_refused_again_and_again_is_let_go() -> None:
    refused = b"".join(call(1 + 2 * n, "DoGet", "wrong") for n in range(45))
    assert hear(new(*TOKENS), [GREETING + refused]).fault is None
    more = b"".join(call(3 + 2 * n, "DoGet", "wrong") for n in range(101))
    assert "100 calls" in str(hear(new(*TOKENS), [GREETING + call(1, "DoGet", "top") + more]).fault)


def test_who_goes_on_sending_on_a_refused_call_is_let_go() -> None:
    megabyte = data(1, bytes(1 << 20))
    assert "too much" in str(hear(new(*TOKENS), [GREETING + call(1, "DoPut"), *[megabyte] * 65]).fault)


# ---- any split of the bytes ----------------------------------------------------------------------------------------
@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """Calls of several methods at once, their messages cut into frames of any length; some too long, some refused."""
    raw, last, streams = bytearray(GREETING), -1, dict[int, bytes]()
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["call", "message", "part", "part", "ping", "reset", "garbage"]))
        stream = draw(st.sampled_from(sorted(streams))) if streams else None
        if kind == "call" or stream is None:
            last += 2
            streams[last] = b""
            raw += call(last, draw(st.sampled_from(["DoPut", "DoGet"])), draw(st.sampled_from(["top", "top", "no"])))
        elif kind == "message":
            streams[stream] += message(draw(st.sampled_from([0, 1, 30, 90, 101, 900])))
        elif kind == "part":
            size = draw(st.integers(0, len(streams[stream])))
            raw += data(stream, streams[stream][:size])
            streams[stream] = streams[stream][size:]
        elif kind == "ping":
            raw += frame(PING, 0, 0, bytes(8))
        elif kind == "reset":
            raw += reset(stream, 8)
            del streams[stream]
        elif draw(st.integers(0, 9)) == 0:
            raw += draw(st.binary(max_size=20))
    for stream, rest in streams.items():
        raw += data(stream, rest, draw(st.sampled_from([0, END_STREAM])))
    return bytes(raw)


def pieces_of(raw: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(raw), *(cut % (len(raw) + 1) for cut in cuts)})
    return [raw[a:b] for a, b in itertools.pairwise(at)]


@given(conversations(), st.lists(st.integers(0, 10_000), max_size=30), st.booleans())
def test_where_the_bytes_are_cut_changes_nothing(raw: bytes, cuts: list[int], skipping: bool) -> None:
    whole = hear(new(*TOKENS), [raw])
    assert hear(new(*TOKENS), pieces_of(raw, cuts), skipping) == whole


@given(conversations())
def test_byte_by_byte_changes_nothing(raw: bytes) -> None:
    assert hear(new(*TOKENS), [raw[n : n + 1] for n in range(len(raw))]) == hear(new(*TOKENS), [raw])


@given(st.lists(st.integers(0, 400), max_size=20), st.data())
def test_the_gate_speaks_between_the_servers_frames(sizes: list[int], draw: st.DataObject) -> None:
    raw = b"".join(frame(DATA, 0, 1, bytes(size)) for size in sizes)
    edges = {sum(9 + size for size in sizes[:n]) for n in range(len(sizes) + 1)}
    outward, passed, kept = Outward(new()), b"", b""
    for piece in pieces_of(raw, draw.draw(st.lists(st.integers(0, 9_000), max_size=20))):
        given = kept + piece
        kept = given[outward.take(memoryview(given)) :]
        passed = b"".join([passed, *outward.out])
        outward.out = []
        assert outward.is_between == (len(passed) in edges)
    assert passed == raw


def test_headers_of_the_server_are_not_interrupted() -> None:
    outward = Outward(new())
    outward.take(memoryview(frame(HEADERS, 0, 1, b"\x88")))
    assert not outward.is_between
    outward.take(memoryview(frame(CONTINUATION, END_HEADERS, 1, b"")))
    assert outward.is_between
