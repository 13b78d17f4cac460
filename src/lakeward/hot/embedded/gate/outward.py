# SPDX-License-Identifier: Apache-2.0
"""What the Flight server sends: all of it passes; where its frames end is kept in mind, so that the gate can say
something in between. Pure.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lakeward.hot.embedded.gate.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    RST_STREAM,
    read_head,
)
from lakeward.hot.embedded.gate.inward import Inward


class Outward:
    """`run`: bytes of a frame that are to come."""

    def __init__(self, inward: Inward, clock: Callable[[], float] = time.monotonic) -> None:
        self._inward, self._clock = inward, clock
        self.out: list[bytes | memoryview] = []
        self.run = 0
        self._is_inside_headers = False

    @property
    def is_between(self) -> bool:
        """No frame, and no block of headers, is under way."""
        return not self.run and not self._is_inside_headers

    def skip(self, size: int) -> None:
        self.run -= size

    def take(self, data: memoryview) -> int:
        """Returns how much of `data` was dealt with: all but a frame's head that is not here whole."""
        at, end = self.run, len(data)
        while end - at >= HEAD:
            length_and_kind, flags, stream_id = read_head(data, at)
            kind = length_and_kind & 0xFF
            if kind <= HEADERS or kind in (CONTINUATION, RST_STREAM):
                self._note(kind, flags, stream_id)
            at += HEAD + (length_and_kind >> 8)
        self.run = max(0, at - end)
        used = min(at, end)
        if used:
            self.out.append(data[:used])
        return used

    def _note(self, kind: int, flags: int, stream_id: int) -> None:
        if kind in (HEADERS, CONTINUATION):
            self._is_inside_headers = not flags & END_HEADERS
        if kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM):
            self._inward.finish(stream_id)
        elif kind == DATA:
            stream = self._inward.streams.get(stream_id)
            if stream is not None:
                stream.active_at = self._clock()
