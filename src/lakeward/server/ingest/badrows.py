# SPDX-License-Identifier: Apache-2.0
"""The rows of one request that do not fit, on their way into the table's quarantine."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from lakeward.errors import LakewardError, TooManyBadRows
from lakeward.model import TableInfo
from lakeward.protocol.quarantine import BadRow
from lakeward.server.ingest.bodies import RowFormat, RowProblem
from lakeward.server.ingest.contract import RowContract
from lakeward.server.ingest.rowtext import row_texts

log = logging.getLogger(__name__)


@dataclass
class BadRows:
    """`ids`: place -> id of rows that are kept, also by an earlier try of the request (`writer_id`)."""

    contract: RowContract
    table: TableInfo
    body: bytes
    format: RowFormat
    source: str
    operation: str
    writer_id: int | None
    ids: dict[int, str] = field(default_factory=dict)

    def find_earlier(self) -> Collection[int]:
        if self.writer_id is not None:
            self.ids.update(self.contract.find_kept(self.table, self.writer_id))
        return self.ids.keys()

    def keep(self, problems: Sequence[RowProblem]) -> bool:
        """False: the quarantine failed, and the rows are refused as without one. Raises `TooManyBadRows`."""
        first = {p.row: p for p in sorted(problems, key=lambda p: p.row, reverse=True) if p.row not in self.ids}
        if not first:
            return True
        texts = row_texts(self.body, self.format, self.table.schema.columns, first.keys())
        kind = "csv" if self.format is RowFormat.CSV else "json"
        rows = [
            BadRow(number=place, row=texts.get(place, ""), reason=p.reason, column=p.column, format=kind)
            for place, p in sorted(first.items())
        ]
        try:
            ids = self.contract.keep(self.table, rows, self.source, self.operation, self.writer_id)
        except TooManyBadRows:
            raise
        except LakewardError as error:
            log.warning("the quarantine of %s does not take rows: %s", self.table.path, error)
            return False
        self.ids.update(zip((row.number for row in rows), ids, strict=True))
        return True
