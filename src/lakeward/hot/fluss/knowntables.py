# SPDX-License-Identifier: Apache-2.0
"""Tables of a cluster by path and by id: Fluss's calls take paths, rounds name ids."""

from __future__ import annotations

import threading

from lakeward.errors import NotFound, TableNotFound
from lakeward.hot.fluss.store import FlussStore
from lakeward.model import TableId, TableInfo, TablePath


class KnownTables:
    """Every table that a job was handed, or loaded, is known by its id. Safe to use from several threads."""

    def __init__(self, store: FlussStore) -> None:
        self._store = store
        self._paths: dict[TableId, TablePath] = {}
        self._lock = threading.Lock()

    def note(self, table_id: TableId, path: TablePath) -> None:
        with self._lock:
            self._paths[table_id] = path

    def load(self, path: TablePath) -> TableInfo:
        table = self._store.load_table(path)
        self.note(table.table_id, path)
        return table

    def load_by_id(self, table_id: TableId) -> TableInfo:
        """Raises `TableNotFound`."""
        return self.load(self.path_of(table_id))

    def path_of(self, table_id: TableId) -> TablePath:
        """Raises `TableNotFound`."""
        with self._lock:
            known_path = self._paths.get(table_id)
        return known_path or self._search(table_id)

    def _search(self, table_id: TableId) -> TablePath:
        for path in self._store.list_tables():
            try:
                if self.load(path).table_id == table_id:
                    return path
            except NotFound:
                continue
        raise TableNotFound(table=f"with Fluss's id {table_id}")
