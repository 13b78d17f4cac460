# SPDX-License-Identifier: Apache-2.0
"""Records about databases: the lake in which new tables of each are created."""

from __future__ import annotations

from collections import Counter

from lakeward.coordinator.state.board import Board
from lakeward.errors import LakeNotFound
from lakeward.model import check_database
from lakeward.protocol.tables import DatabaseStatus


class Databases:
    """A database is there with its first table, or with its first setting."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._lakes: dict[str, str] = {}

    def load(self) -> None:
        with self._board.lock:
            self._lakes = self._board.store.load_databases()

    def find_lake(self, database: str) -> str | None:
        """None: new tables of it go where the server's configuration says."""
        with self._board.lock:
            return self._lakes.get(database)

    def may_have(self, database: str, lake: str) -> bool:
        """May who has no right but to this database put its tables there? Into a lake that is open to it, and into the
        one that it was given. Of a lake that is not configured others say so."""
        known = self._board.options.configured.get(lake)
        return known is None or known.is_open_to(database) or self.find_lake(database) == lake

    def alter(self, database: str, lake: str | None) -> DatabaseStatus:
        """Counts for tables that are made from now on. Raises `LakeNotFound`, `InvalidRequest`."""
        check_database(database)
        configured_lakes = self._board.options.configured
        if lake is not None and lake not in configured_lakes:
            raise LakeNotFound(lake=lake[:80], lakes=", ".join(configured_lakes) or "none")
        with self._board.lock, self._board.store.transaction():
            self._board.store.save_database(database, lake)
            self._lakes.pop(database, None)
            if lake is not None:
                self._lakes[database] = lake
        return next((s for s in self.listed() if s.name == database), DatabaseStatus(name=database))

    def listed(self) -> list[DatabaseStatus]:
        with self._board.lock:
            tables, lakes = Counter(path.database for path in self._board.by_path), dict(self._lakes)
        names = sorted({*tables, *lakes})
        return [DatabaseStatus(name=name, lake=lakes.get(name), tables=tables[name]) for name in names]
