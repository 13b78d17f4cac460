# SPDX-License-Identifier: Apache-2.0
"""Applies a table's contract to rows of a file that do not fit: adds columns, or quarantines the rows."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from lakeward.cli.files.filerows import BadText, FileShape, Place, Rejects
from lakeward.cli.files.problems import Problem
from lakeward.cli.files.rowfiles import WriteFormat
from lakeward.cli.output import note
from lakeward.config import options
from lakeward.config.options import SchemaContract
from lakeward.model import Float64Type, quote_name
from lakeward.protocol import routes
from lakeward.protocol.quarantine import BadRow, EvolveTable, QuarantineRows
from lakeward.protocol.tables import TableAnswer

if TYPE_CHECKING:
    from lakeward.client.table import Table

_AT_ONCE, _BYTES_AT_ONCE = 1_000, 4 << 20
"""Rows and bytes per call to the server."""


def load_contract(table: Table) -> SchemaContract:
    """As the table or the server says. An older server knows none."""
    listed = table.client.server.ask("GET", routes.PROPERTIES.format(table=table.path))["properties"]
    values = {p["key"]: p["value"] for p in listed}
    return SchemaContract(values.get(options.TABLE_SCHEMA_CONTRACT.key) or SchemaContract.STRICT)


def add_columns(table: Table, file: str, kind: WriteFormat, shape: FileShape) -> Table:
    """Adds the file's further columns to the table. All values of a column decide its type, but fractions are DOUBLE:
    the next file may have more digits."""
    from lakeward.cli.files.csvguess import MONEY
    from lakeward.cli.files.propose import propose

    taken_names = {*table.info.schema.names, *shape.renamed}
    new = [c for c in propose(file, kind, shape).columns if c.name not in taken_names]
    if kind is WriteFormat.CSV:
        new = [replace(c, type=Float64Type()) if c.type == MONEY else c for c in new]
    if not new:
        return table
    request = EvolveTable(columns=tuple(c.to_json() for c in new))
    table.client.server.call(TableAnswer, "POST", routes.EVOLVE.format(table=table.path), request)
    note(f"{table.path} got {', '.join(f'{quote_name(c.name)} {c.type}' for c in new)}")
    return table.client.table(table.path)


class QuarantinedRows(Rejects):
    """Rejects that go to the table's quarantine, before the rows of their chunk go to the table."""

    def __init__(self, table: Table, operation: str) -> None:
        super().__init__()
        self._table, self._operation = table, operation
        self._source = ""
        self._pending: list[BadRow] = []

    @property
    def is_skipping(self) -> bool:
        return True

    def add(
        self, place: Place, value: str, reason: str, problem: Problem | None = None, row: BadText | None = None
    ) -> None:
        text, kind = row or (value, "json")
        self.count += 1
        self._source = place.file
        words = f"{place.short}: {reason}"
        self._pending.append(BadRow(number=self.count, row=text, reason=words, column=place.at or "", format=kind))

    def forget(self) -> None:
        """An earlier run of the write kept them."""
        self._pending = []

    def flush(self, key: str) -> None:
        """Durable when it returns; calling it again with the same rows and key stores nothing twice. Raises
        `TooManyBadRows`, and what the quarantine fails with."""
        part, size, number = list[BadRow](), 0, 0
        for row in (*self._pending, None):
            is_full = len(part) == _AT_ONCE or size > _BYTES_AT_ONCE
            if part and (row is None or is_full):
                request = QuarantineRows(
                    source=self._source, operation=self._operation, key=f"{key}-{number}", rows=tuple(part)
                )
                route = routes.QUARANTINE.format(table=self._table.path)
                self._table.client.server.ask("POST", route, asdict(request))
                part, size, number = [], 0, number + 1
            if row is not None:
                part.append(row)
                size += len(row.row)
        self._pending = []
