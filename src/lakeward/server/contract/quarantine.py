# SPDX-License-Identifier: Apache-2.0
"""Puts rows that a table does not take into its quarantine, each once."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Sequence
from itertools import count

from lakeward.config import Config, options
from lakeward.coordinator.federation import Federation
from lakeward.errors import TableNotFound
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Clock, TableInfo, TablePath, fault_point
from lakeward.protocol.quarantine import BadRow, QuarantinedRow
from lakeward.protocol.tables import CreateTable
from lakeward.server.contract.quarantinetable import (
    BUCKET,
    check_quarantine,
    describe_quarantine,
    quarantine_path,
    row_id,
    to_records,
)
from lakeward.server.contract.rates import BadRowRates

log = logging.getLogger(__name__)


class Quarantine:
    """One per server. Thread-safe; `add` blocks until the rows are durable."""

    def __init__(self, store: EmbeddedStore, federation: Federation, config: Config, clock: Clock) -> None:
        self.store, self.federation, self.config, self.clock = store, federation, config, clock
        self.rates = BadRowRates()
        self._lock = threading.Lock()

    def find_table(self, path: TablePath) -> TableInfo | None:
        """The quarantine of a table; None where no row was put into it yet. Raises `InvalidTable`."""
        try:
            table = self.store.load_table(quarantine_path(path))
        except TableNotFound:
            return None
        check_quarantine(table)
        return table

    def find_ids(self, table: TableInfo, writer_id: int) -> dict[int, str]:
        """Place -> id of the rows that this writer put before, so that a request that is sent again keeps its rows
        apart as it did the first time."""
        quarantine = self.find_table(table.path)
        bucket = None if quarantine is None else self.store.hot_table(quarantine).find_bucket(BUCKET)
        ids: dict[int, str] = {}
        if quarantine is None or bucket is None:
            return ids
        for sequence in count():
            put = bucket.log.find_duplicate(WriterSequence(writer_id, sequence))
            if put is None:
                break
            records = self.store.read_log(quarantine, BUCKET, put.start, put.stop, ["id", "row_number"])
            ids |= {r["row_number"]: r["id"] for batch in records for r in batch.to_pylist()}
        return ids

    def _due(self, quarantine: TableInfo, writer_id: int) -> int:
        """The writer's next sequence."""
        bucket = self.store.hot_table(quarantine).find_bucket(BUCKET)
        if bucket is None:
            return 0
        return next(s for s in count() if bucket.log.find_duplicate(WriterSequence(writer_id, s)) is None)

    def add(
        self, table: TableInfo, rows: Sequence[BadRow], source: str, operation: str, writer_id: int | None = None
    ) -> list[str]:
        """Returns the rows' ids. A writer's earlier rows are not among them: ask `find_ids` first. Raises
        `TooManyBadRows`, what creating a table does, and the errors of puts."""
        quarantine = self._table(table)
        limit = self.config.for_table(table.descriptor.properties).get(
            options.TABLE_SCHEMA_QUARANTINE_MAX_ROWS_PER_MINUTE
        )
        self.rates.add(table.path, len(rows), limit)
        writer = secrets.randbits(63) if writer_id is None else writer_id
        at_ms, table_id = self.clock.now_ms(), str(table.table_id)
        stored = [
            QuarantinedRow(
                id=row_id(table_id, writer, row.number), at_ms=at_ms, source=source, operation=operation, bad=row
            )
            for row in rows
        ]
        sequence = WriterSequence(writer, 0 if writer_id is None else self._due(quarantine, writer))
        self.store.append(quarantine, BUCKET, to_records(stored), sequence)
        fault_point("quarantine.after-put", table=str(table.path))
        return [row.id for row in stored]

    def _table(self, table: TableInfo) -> TableInfo:
        with self._lock:
            quarantine_table = self.find_table(table.path)
            if quarantine_table is not None:
                return quarantine_table
            path = quarantine_path(table.path)
            created = self.federation.create(
                CreateTable(path=path, descriptor=describe_quarantine(table), if_not_exists=True)
            )
            log.info("table %s keeps rows that %s does not take", path, table.path)
            check_quarantine(created.table)
            return created.table
