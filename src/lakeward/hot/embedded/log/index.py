# SPDX-License-Identifier: Apache-2.0
"""The sparse index of one segment: where some of its batches lie, by offset and by time."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

INTERVAL_BYTES = 64 << 10
"""Unless an option says otherwise: 1,000 entries (24 kB) for a full 64 MB segment, at most 64 kB of headers to step
over.
"""


class SparseIndex:
    """One writer, many readers without a lock: an entry is complete before its offset shows."""

    __slots__ = ("_interval", "_offsets", "_positions", "_times")

    def __init__(self, interval_bytes: int = INTERVAL_BYTES) -> None:
        self._interval = interval_bytes
        self._offsets, self._positions, self._times = array("q"), array("q"), array("q")

    def add(self, offset: int, position: int, timestamp_ms: int) -> None:
        if self._positions and position - self._positions[-1] < self._interval:
            return
        self._positions.append(position)
        self._times.append(timestamp_ms)
        self._offsets.append(offset)

    def position_of(self, offset: int) -> int:
        """Where to begin stepping to reach this offset."""
        at = bisect_right(self._offsets, offset) - 1
        return self._positions[at] if at >= 0 else 0

    def position_before(self, at_ms: int) -> int:
        """Where to begin stepping to reach the first batch at or after this time. Times never go back within a log."""
        at = bisect_left(self._times, at_ms, 0, len(self._offsets)) - 1
        return self._positions[at] if at >= 0 else 0

    def __len__(self) -> int:
        return len(self._offsets)

    def to_bytes(self) -> bytes:
        return self._offsets.tobytes() + self._positions.tobytes() + self._times.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, interval_bytes: int = INTERVAL_BYTES) -> SparseIndex:
        index, third = cls(interval_bytes), len(data) // 3
        for column, name in enumerate(cls.__slots__[1:]):
            getattr(index, name).frombytes(data[column * third : (column + 1) * third])
        return index
