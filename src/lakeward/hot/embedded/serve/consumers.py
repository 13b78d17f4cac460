# SPDX-License-Identifier: Apache-2.0
"""Who follows which table's log, and how far it is: told by the offsets that each question for newer rows carries."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from lakeward.model import Bucket, TableId
from lakeward.spi import LogBounds

FORGOTTEN_S = 300.0
"""A subscription asks at least every half minute."""

MOST = 10_000
PURGE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """`reached`: the offsets where it goes on, summed over buckets. `seen`: monotonic time of its last question."""

    table_id: TableId
    who: str
    peer: str
    reached: int
    seen: float


def count_reached(offsets: Mapping[Bucket, int], bounds: Mapping[Bucket, LogBounds]) -> int:
    """A bucket that is not named is read from its start; what a peer names beyond a log counts for nothing."""
    return sum(min(max(offsets.get(b, v.start), v.start), v.end) for b, v in bounds.items())


class Consumers:
    """Thread-safe. Two that share a connection and a table are one here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[TableId, str, str], Consumer] = {}
        self._read: dict[TableId, float] = {}
        self._purge_at = 0.0

    def note(self, table_id: TableId, who: str, peer: str, reached: int) -> None:
        """Records a consumer of an existing table."""
        now = time.monotonic()
        with self._lock:
            self._read[table_id] = now
            key = (table_id, who, peer)
            if key in self._held or self._has_room(now):
                self._held[key] = Consumer(table_id=table_id, who=who, peer=peer, reached=reached, seen=now)

    def _has_room(self, now: float) -> bool:
        """Looks for silent consumers at most once in `PURGE_S`: with more than `MOST`, every question would."""
        if len(self._held) >= MOST and now >= self._purge_at:
            self._purge_at = now + PURGE_S
            self._held = {k: c for k, c in self._held.items() if c.seen > now - FORGOTTEN_S}
        return len(self._held) < MOST

    def note_read(self, table_id: TableId) -> None:
        """Somebody read it, in whichever way. Of a table that there is."""
        with self._lock:
            self._read[table_id] = time.monotonic()

    def read_at(self, table_id: TableId) -> float | None:
        """Monotonic; None: not since the server started."""
        with self._lock:
            return self._read.get(table_id)

    def of_table(self, table_id: TableId) -> list[Consumer]:
        since = time.monotonic() - FORGOTTEN_S
        with self._lock:
            return [c for c in self._held.values() if c.table_id == table_id and c.seen > since]
