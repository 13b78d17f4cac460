# SPDX-License-Identifier: Apache-2.0
"""What this process has read of a table's log: entries never change, so that only new ones are read and replayed."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

from lakeward.lake.delta.meta.actions import DeltaTableState, LogEntry

_ENTRIES = 20_000
"""About 2 kB each, without the files that they name."""

_STATES = 4
"""The newest, and those that readers are pinned to. They share their files."""

T = TypeVar("T")


class LogCache:
    """Safe to use from several threads: what is asked for twice is read twice at the worst."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._entries, self._states = OrderedDict[int, LogEntry](), OrderedDict[int, DeltaTableState]()
        self.stamp: tuple[int, str] | None = None
        """The newest version that was read, and its file's stamp: with another one there, this is another table."""

    def find_entry(self, version: int) -> LogEntry | None:
        return self._entries.get(version)

    def keep_entry(self, entry: LogEntry) -> None:
        _keep(self._entries, entry.version, entry, _ENTRIES)

    def find_state(self, wanted: int) -> DeltaTableState | None:
        """The newest that is not after it."""
        return max((s for v, s in list(self._states.items()) if v <= wanted), key=lambda s: s.version, default=None)

    def keep_state(self, state: DeltaTableState, stamp: str | None) -> None:
        _keep(self._states, state.version, state, _STATES)
        if stamp is not None and (self.stamp is None or state.version > self.stamp[0]):
            self.stamp = state.version, stamp


def _keep(kept: OrderedDict[int, T], version: int, value: T, most: int) -> None:
    kept[version] = value
    kept.move_to_end(version)
    while len(kept) > most:
        kept.popitem(last=False)
