# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 frames, as far as the gate speaks of them (RFC 9113)."""

from __future__ import annotations

import struct

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, WITH_PRIORITY = 0x1, 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, FRAME_SIZE_ERROR, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 6, 8, 11

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = 9
"""Bytes of a frame before its payload."""

read_head = struct.Struct(">IBI").unpack_from
"""(length and kind in one number, flags, stream) of a frame. One call: this is done for every frame there is."""
read_length = struct.Struct(">I").unpack_from


class Misbehaved(Exception):
    """The peer is no HTTP/2 peer, or one that does harm: the connection ends."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def frame_head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    return length.to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big")


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return frame_head(len(payload), kind, flags, stream_id) + payload


def reset(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def goaway(last_stream_id: int, code: int, text: str) -> bytes:
    payload = last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big") + text.encode()
    return frame(GOAWAY, 0, 0, payload)


def credit(size: int) -> bytes:
    """Gives back what was sent on the connection and is not passed on."""
    return frame(WINDOW_UPDATE, 0, 0, size.to_bytes(4, "big"))
