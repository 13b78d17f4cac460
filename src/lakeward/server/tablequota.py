# SPDX-License-Identifier: Apache-2.0
"""Quotas on the tables of a token: their number, and the size of their definitions, which stay in memory."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace

from lakeward.errors import QuotaExceeded, TableLoading, TableNotFound
from lakeward.model import TableDescriptor, TablePath
from lakeward.protocol.auth import Token
from lakeward.protocol.codec import encode
from lakeward.protocol.tables import AlterTable
from lakeward.spi import HotAdmin

_COUNT_AGAIN_AFTER = 1000
"""Changes that are added up before tables are counted again: counting 10,000 of them takes 0.1 s."""


@dataclass
class _Used:
    """An upper bound: the tables at the last count, plus all that was admitted since."""

    tables: int
    bytes: int
    changes: int = 0

    def add(self, tables: int, size: int) -> None:
        self.tables, self.bytes, self.changes = self.tables + tables, self.bytes + size, self.changes + 1


class TableQuota:
    """Thread-safe. The size of a table is that of its descriptor as JSON, which takes a fourth or a fifth of the
    memory, times the number of its schemas."""

    def __init__(self, max_tables: int = 10_000, max_bytes: int = 64 << 20) -> None:
        self.max_tables, self._max_bytes = max_tables, max_bytes
        self._used: dict[tuple[str, ...], _Used] = {}
        self._lock = threading.Lock()

    def check_new(self, token: Token, path: TablePath, descriptor: TableDescriptor | None, hot: HotAdmin) -> None:
        """Before a table is created or adopted. Raises `QuotaExceeded`."""
        try:
            hot.load_table(path)
        except TableNotFound:
            self._admit(token, 1, 0 if descriptor is None else _json_bytes(descriptor), hot)
        except TableLoading:
            return

    def check_change(self, token: Token, path: TablePath, change: AlterTable, hot: HotAdmin) -> None:
        """Before a table is altered: each change of columns stores another schema. Raises `QuotaExceeded`,
        `TableNotFound`."""
        size = len(json.dumps(encode(change)))
        if replace(change, properties={}, dry_run=False) != AlterTable():
            size += _json_bytes(hot.load_table(path).descriptor)
        self._admit(token, 0, size, hot)

    def _admit(self, token: Token, tables: int, size: int, hot: HotAdmin) -> None:
        with self._lock:
            used = self._used.get(token.tables)
            if used is None or used.changes >= _COUNT_AGAIN_AFTER or self._excess(used, tables, size) is not None:
                used = self._used[token.tables] = _count(token, hot)
            excess = self._excess(used, tables, size)
            if excess is not None:
                what, amount, limit = excess
                raise QuotaExceeded(token_name=token.name, what=what, used=amount, limit=limit)
            for each in self._used.values():
                each.add(tables, size)

    def _excess(self, used: _Used, tables: int, size: int) -> tuple[str, int, int] | None:
        if tables and used.tables >= self.max_tables:
            return "tables", used.tables, self.max_tables
        if used.bytes + size > self._max_bytes:
            return "bytes of table definitions", used.bytes + size, self._max_bytes
        return None


def _count(token: Token, hot: HotAdmin) -> _Used:
    sizes = [
        _json_bytes(table.descriptor) * max(1, table.schema.schema_id)
        for table in hot.load_tables()
        if token.may_use(table.path)
    ]
    return _Used(tables=len(sizes), bytes=sum(sizes))


def _json_bytes(descriptor: TableDescriptor) -> int:
    return len(json.dumps(descriptor.to_json()))
