# SPDX-License-Identifier: Apache-2.0
"""Cuts of this store: log ends of several tables at one moment, kept in memory while rounds must stop there."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from lakeward.hot.embedded.hottable import HotTable
from lakeward.model import CutEnds, TableId, fault_point


class OpenCuts:
    """Thread-safe. Whoever keeps cuts gives the open ones back after a restart (`add`), before rounds are planned."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cuts: dict[str, dict[TableId, CutEnds]] = {}

    def freeze(self, name: str, tables: Sequence[HotTable]) -> Mapping[TableId, CutEnds]:
        """While every append lock of these tables is held. A put that was acknowledged before another one began had its
        offsets before it: where the second is below the ends, the first is too. On disk when this returns; a round that
        froze before has nothing above the ends, one that freezes after it sees them.

        `tables` in the store's order, which is the one that a backup takes the locks in."""
        with _still(tables):
            ends = _ends(tables)
            self.add(name, ends)
        try:
            for hot in tables:
                for bucket in hot.opened():
                    bucket.log.sync()
        except BaseException:
            self.forget(name)
            raise
        return ends

    @staticmethod
    def look(tables: Sequence[HotTable]) -> Mapping[TableId, CutEnds]:
        """The ends at one moment, without telling rounds about them. Rows below them may not be on disk yet; a read
        puts them there."""
        with _still(tables):
            return _ends(tables)

    def add(self, name: str, ends: Mapping[TableId, CutEnds]) -> None:
        with self._lock:
            self._cuts[name] = dict(ends)

    def forget(self, name: str) -> None:
        with self._lock:
            self._cuts.pop(name, None)

    def of(self, table_id: TableId) -> tuple[CutEnds, ...]:
        """Oldest first."""
        with self._lock:
            return tuple(ends[table_id] for ends in self._cuts.values() if table_id in ends)


@contextmanager
def _still(tables: Sequence[HotTable]) -> Iterator[None]:
    with ExitStack() as held:
        for hot in tables:
            held.enter_context(hot.still())
        yield


def _ends(tables: Sequence[HotTable]) -> dict[TableId, CutEnds]:
    ends = {}
    for hot in tables:
        ends[hot.info.table_id] = hot.cut_ends()
        fault_point("hotcut.table", table=str(hot.info.path))
    return ends
