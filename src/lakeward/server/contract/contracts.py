# SPDX-License-Identifier: Apache-2.0
"""Applies each table's contract (`table.schema.contract`) to rows that do not fit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from lakeward.config import Config, options
from lakeward.config.options import SchemaContract
from lakeward.errors import InvalidAlter, InvalidTable
from lakeward.model import Column, TableInfo
from lakeward.protocol.quarantine import BadRow
from lakeward.protocol.tables import AlterTable
from lakeward.server.contract.quarantine import Quarantine
from lakeward.server.ingest.contract import RowContract

log = logging.getLogger(__name__)

_TRIES = 3
"""Attempts to add columns while other requests add some too."""


class TableContracts(RowContract):
    def __init__(self, config: Config, quarantine: Quarantine) -> None:
        self.config, self.quarantine = config, quarantine

    def of(self, table: TableInfo) -> SchemaContract:
        return self.config.for_table(table.descriptor.properties).get(options.TABLE_SCHEMA_CONTRACT)

    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> TableInfo:
        if self.of(table) is not SchemaContract.EVOLVE:
            reason = f"{options.TABLE_SCHEMA_CONTRACT.key} is {self.of(table)}; rows add columns where it is evolve"
            raise InvalidAlter(table=str(table.path), change=_words(columns), reason=reason)
        for tries in range(_TRIES):
            new = [c for c in columns if c.name not in table.schema.names]
            if not new:
                return table
            self._check_count(table, new)
            today = datetime.fromtimestamp(self.quarantine.clock.now_ms() / 1000, UTC).date()
            noted = [replace(c, comment=f"added for a row of {today}").to_json() for c in new]
            try:
                altered = self.quarantine.federation.alter(table.path, AlterTable(add_columns=tuple(noted))).table
            except (InvalidAlter, InvalidTable):
                table = self.quarantine.store.load_table(table.path)
                if tries + 1 == _TRIES or not any(c.name in table.schema.names for c in new):
                    raise
            else:
                log.info("table %s: %s for a row (table.schema.contract = evolve)", table.path, _words(new))
                return altered
        return table

    def _check_count(self, table: TableInfo, new: Sequence[Column]) -> None:
        key = options.TABLE_SCHEMA_EVOLVE_MAX_COLUMNS
        most = self.config.for_table(table.descriptor.properties).get(key)
        if len(table.schema.columns) + len(new) > most:
            reason = f"the table would have more than {most} columns: correct the rows, or raise {key.key}"
            raise InvalidAlter(table=str(table.path), change=_words(new), reason=reason)

    def find_kept(self, table: TableInfo, writer_id: int) -> Mapping[int, str]:
        return self.quarantine.find_ids(table, writer_id)

    def keep(
        self, table: TableInfo, rows: Sequence[BadRow], source: str, operation: str, writer_id: int | None
    ) -> Sequence[str]:
        return self.quarantine.add(table, rows, source, operation, writer_id)


def _words(columns: Sequence[Column]) -> str:
    return f"add column {', '.join(f'{c.name} {c.type}' for c in columns[:5])}"
