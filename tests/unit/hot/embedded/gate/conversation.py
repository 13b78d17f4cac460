# SPDX-License-Identifier: Apache-2.0
"""What clients say to the gate, as bytes, and what it made of them, as frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakeward.hot.embedded.gate.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    Misbehaved,
    frame,
)
from lakeward.hot.embedded.gate.headerblock import write_fields
from lakeward.hot.embedded.gate.inward import Inward
from lakeward.hot.embedded.gate.rules import Rules
from lakeward.protocol.auth import TokenSet

GREETING = PREFACE + frame(SETTINGS, 0, 0, b"")
Frame = tuple[int, int, int, bytes]


def rules(tokens: Sequence[str] = (), batch_bytes: int = 1000, ticket_bytes: int = 100) -> Rules:
    return Rules(tokens=TokenSet.parse(tokens), batch_bytes=batch_bytes, ticket_bytes=ticket_bytes)


def call_fields(method: str, secret: str | None = None) -> list[tuple[bytes, bytes]]:
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", f"/arrow.flight.protocol.FlightService/{method}".encode()),
        (b":authority", b"here"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ]
    return fields if secret is None else [*fields, (b"authorization", f"Bearer {secret}".encode())]


def call(stream_id: int, method: str, secret: str | None = None, *more: tuple[bytes, bytes]) -> bytes:
    return frame(HEADERS, END_HEADERS, stream_id, write_fields([*call_fields(method, secret), *more]))


def message(size: int, *, packed: int = 0, filled: bool = True) -> bytes:
    """A gRPC message of `size` bytes: one of Flight's with nothing but a body in it."""
    return bytes([packed]) + size.to_bytes(4, "big") + (_body(size) if filled else b"")


def _body(size: int) -> bytes:
    for width in (1, 2, 3, 4):
        rest = size - 2 - width
        if rest >= 0 and len(varint(rest)) == width:
            return b"\xc2\x3e" + varint(rest) + b"m" * rest
    return b"\xc2\x3e"[:size]  # too short for a whole one


def varint(number: int) -> bytes:
    raw = bytearray()
    while number >= 0x80:
        raw.append(number & 0x7F | 0x80)
        number >>= 7
    raw.append(number)
    return bytes(raw)


def data(stream_id: int, payload: bytes, flags: int = 0) -> bytes:
    return frame(DATA, flags, stream_id, payload)


@dataclass
class Heard:
    """All that came out of an `Inward`, DATA frames of one stream that follow each other as one."""

    passed: list[Frame] = field(default_factory=list)
    told: list[Frame] = field(default_factory=list)
    credit: int = 0
    fault: str | None = None


def hear(inward: Inward, pieces: Sequence[bytes], skipping: bool = False) -> Heard:
    """`skipping`: what may pass unseen does, as with splice."""
    out, back, kept, heard = bytearray(), bytearray(), b"", Heard()
    for piece in pieces:
        if skipping and inward.run:
            step = min(inward.run, len(piece))
            inward.skip(step)
            out += piece[:step]
            piece = piece[step:]
        try:
            given = kept + piece
            kept = given[inward.take(memoryview(given)) :]
        except Misbehaved as error:
            return Heard(fault=error.text)
        out += b"".join(inward.out)
        back += b"".join(inward.back)
        inward.out, inward.back = [], []
    heard.passed = merged(frames(bytes(out[len(PREFACE) :])))
    for told in frames(bytes(back)):
        if told[0] == WINDOW_UPDATE:
            heard.credit += int.from_bytes(told[3], "big")
        else:
            heard.told.append(told)
    return heard


def frames(raw: bytes) -> list[Frame]:
    found = []
    while raw:
        size = int.from_bytes(raw[:3], "big")
        assert len(raw) >= HEAD + size, "a frame is not whole"
        found.append((raw[3], raw[4], int.from_bytes(raw[5:HEAD], "big"), raw[HEAD : HEAD + size]))
        raw = raw[HEAD + size :]
    return found


def merged(found: Sequence[Frame]) -> list[Frame]:
    joined: list[Frame] = []
    for one in found:
        if joined and one[0] == DATA and joined[-1][0] == DATA and joined[-1][2] == one[2]:
            before = joined.pop()
            assert not before[1] & END_STREAM, "data behind the end of a stream"
            joined.append((DATA, before[1] | one[1], one[2], before[3] + one[3]))
        else:
            joined.append(one)
    return joined
