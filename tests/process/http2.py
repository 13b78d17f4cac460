# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 as strangers may speak it to the Flight port: frames of RFC 9113, headers of RFC 7541 without a table."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 0x1, 0x4
CANCEL = 8
HEAD = 9
"""Bytes of a frame before its payload."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

Frame = tuple[int, int, int, bytes]
"""Kind, flags, stream, payload."""


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


GREETING = PREFACE + frame(SETTINGS, 0, 0, b"")


def block(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Literals that are not indexed, in plain text."""
    return b"".join(b"\0" + _length(name) + name + _length(value) + value for name, value in fields)


def _length(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes([len(text)])
    rest, raw = len(text) - 127, bytearray(b"\x7f")
    while rest >= 0x80:
        raw.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*raw, rest])


def call(stream_id: int, method: str, secret: str | None = None, *more: tuple[bytes, bytes]) -> bytes:
    """The headers of a call."""
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", f"/arrow.flight.protocol.FlightService/{method}".encode()),
        (b":authority", b"here"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *([] if secret is None else [(b"authorization", f"Bearer {secret}".encode())]),
        *more,
    ]
    return frame(HEADERS, END_HEADERS, stream_id, block(fields))


def message(size: int, *, packed: int = 0, filled: bool = True) -> bytes:
    """A gRPC message of `size` bytes of nothing Flight knows; not `filled`: its announcement alone."""
    return bytes([packed]) + size.to_bytes(4, "big") + (b"m" * size if filled else b"")


def data(stream_id: int, payload: bytes, flags: int = 0) -> bytes:
    return frame(DATA, flags, stream_id, payload)


def reset(stream_id: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, CANCEL.to_bytes(4, "big"))


def frames_until_end(peer: socket.socket) -> list[Frame]:
    """What came until the connection was closed."""
    raw = b""
    with suppress(ConnectionResetError):
        while piece := peer.recv(65536):
            raw += piece
    return frames(raw)


def frames(raw: bytes) -> list[Frame]:
    found = []
    while len(raw) >= HEAD:
        size = int.from_bytes(raw[:3], "big")
        found.append((raw[3], raw[4], int.from_bytes(raw[5:HEAD], "big"), raw[HEAD : HEAD + size]))
        raw = raw[HEAD + size :]
    return found
