# SPDX-License-Identifier: Apache-2.0
"""Removes Lakeward's own lake tables: with their table, after it, or to write them again."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.coordinator.lake.tablesides import TableSides, enabled
from lakeward.coordinator.options import SideOptions
from lakeward.coordinator.state.board import Board
from lakeward.errors import InvalidRequest, LakeForeign, LakeMismatch
from lakeward.model import SideName, TableInfo, TablePath, side_table
from lakeward.spi import LakeCatalog, lake_named


@dataclass(frozen=True, kw_only=True)
class OwnLakeTable:
    """A lake table that belongs to Lakeward: it has snapshots of Lakeward, or is empty and was created by it."""

    path: TablePath
    lake: str
    catalog: LakeCatalog

    def drop(self) -> None:
        with lake_named(self.lake):
            self.catalog.drop(self.path)


class OwnLakeTables:
    def __init__(self, board: Board, sides: TableSides) -> None:
        self._board, self._sides = board, sides

    def make_room(self, catalog: LakeCatalog, table: TableInfo) -> None:
        """Removes an empty Lakeward table that the new table does not fit into: an earlier table of that name was
        dropped before its first round. Raises `LakeMismatch` for tables with rows and for foreign ones."""
        try:
            catalog.check_create(table)
        except LakeMismatch as mismatch:
            if catalog.is_own_and_empty(table.path):
                catalog.drop(table.path)
                return
            if catalog.table_id(table.path) is None:
                raise
            advice = f"it has rows of an earlier table; `lakeward table drop {table.path} --with-lake` removes it"
            raise LakeMismatch(table=str(table.path), diff=f"{mismatch.diff}; {advice}") from mismatch

    def of_table(self, table: TableInfo) -> list[OwnLakeTable]:
        """Lake tables of every side that is on. Raises `LakeForeign`, `InvalidRequest` for tables that must not be
        removed."""
        sides = enabled(self._sides.of(table))
        found = [self.find(table, name, options) for name, options in sides.items()]
        return [own for own in found if own is not None]

    def left_behind(self, path: TablePath) -> list[OwnLakeTable]:
        """Lake tables left by a dropped table: in lakes where a new one of that name would be, and in all others."""
        found = []
        for name, lake in self._board.options.configured.items():
            catalog = self._board.lakes(name).catalog() if lake.enabled else None
            with lake_named(name):
                if catalog is not None and catalog.exists(path) and _is_ours(catalog, path):
                    found.append(OwnLakeTable(path=path, lake=name, catalog=catalog))
        return found

    def find(self, table: TableInfo, name: SideName, options: SideOptions) -> OwnLakeTable | None:
        """None where it is gone from its lake. Raises `LakeForeign`, `InvalidRequest`."""
        of, catalog = side_table(table, name), self._sides.catalog(options)
        with lake_named(options.lake):
            if not catalog.exists(of.path):
                return None
            owner = catalog.table_id(of.path)
            if owner is not None and owner != table.table_id:
                raise LakeForeign(table=str(of.path), found=owner, expected=table.table_id)
            if owner is None and not catalog.is_own_and_empty(of.path):
                reason = "it has rows, and no snapshot of Lakeward: remove it with the engine that made it"
                raise InvalidRequest(what=f"removal of lake table {of.path}", reason=reason)
        return OwnLakeTable(path=of.path, lake=options.lake, catalog=catalog)

    def only_in_lake(self, table: TableInfo, name: SideName | None) -> int:
        """Rows, at most, that a lake table written again from the hot store would lack: of log tables those that the
        log let go of, of any table those of partitions that the hot store dropped."""
        side, bounds = self._board.find(table.path, name), self._board.hot.bounds(table)
        rows = 0
        for bucket, committed in side.committed.items():
            kept_from = bounds[bucket].start if bucket in bounds else committed
            rows += min(committed, kept_from) if bucket not in bounds or not side.lake_table.is_pk else 0
        if side.lake_table.is_pk:
            return rows
        skipped = sum(len(gap) for bucket, gap in self._board.hot.gaps(table) if bucket in bounds)
        return rows + skipped + self._adopted(table, side.options)

    def _adopted(self, table: TableInfo, options: SideOptions) -> int:
        adopted = self._board.lakes(options.lake).open_reader(table).adopted if table.descriptor.is_clean else None
        return 0 if adopted is None else adopted.rows


def _is_ours(catalog: LakeCatalog, path: TablePath) -> bool:
    return catalog.table_id(path) is not None or catalog.is_own_and_empty(path)
