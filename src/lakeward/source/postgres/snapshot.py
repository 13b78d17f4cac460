# SPDX-License-Identifier: Apache-2.0
"""The rows that a Postgres table has already: read by key in chunks, so that a snapshot that was cut off goes on behind
the last chunk that is stored."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
from psycopg2 import sql

from lakeward.protocol.sources import Frame, FrameKind
from lakeward.source.changes import ChangedTable
from lakeward.source.postgres.origin import Origin, PgTable
from lakeward.source.postgres.tables import IngestedTable
from lakeward.spi.source import Step

FIRST_ROWS, MOST_ROWS, CHUNK_BYTES = 200, 100_000, 8 << 20
"""A chunk has about `CHUNK_BYTES`; the first is small, as rows may be large."""


class SnapshotReader:
    """One transaction that sees one moment: that of `snapshot`, exported by the slot's creation, or now."""

    def __init__(self, origin: Origin, snapshot: str | None) -> None:
        self.origin = origin
        self._connection = origin.connect()
        self._connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
        with origin.translated(), self._connection.cursor() as cursor:
            if snapshot is not None:
                cursor.execute("SET TRANSACTION SNAPSHOT %s", (snapshot,))
            else:
                cursor.execute("SELECT 1")

    def close(self) -> None:
        self._connection.close()

    def chunks(self, table: PgTable, changed: ChangedTable, state: IngestedTable) -> Iterator[list[Step]]:
        """Steps of the chunks behind `state.last`, which moves along; the last call sets `state.done`."""
        rows = FIRST_ROWS
        while not state.done:
            with tempfile.SpooledTemporaryFile(4 * CHUNK_BYTES) as spool:
                self._copy(table, state.last, rows, spool)
                size = spool.tell()
                spool.seek(0)
                cells = _read_cells(spool.read(), table)
            count = cells.num_rows
            steps = []
            if state.truncate:
                steps.append(Step(frame=Frame(table=changed.path, kind=FrameKind.TRUNCATE), rows=pa.table({})))
                state.truncate = False
            if count:
                texts = list(zip(*(column.to_pylist() for column in cells.columns), strict=True))
                steps.append(
                    Step(
                        frame=Frame(table=changed.path, kind=FrameKind.UPSERT),
                        rows=changed.to_arrow(changed.columns, texts),
                    )
                )
                state.last = [str(cells.column(name)[count - 1].as_py()) for name in table.key]
                state.rows += count
            state.done = count < rows
            per_row = size / count if count else 1
            rows = max(1, min(MOST_ROWS, 4 * rows, int(CHUNK_BYTES / max(per_row, 1))))
            yield steps

    def _copy(self, table: PgTable, last: list[str] | None, rows: int, into: IO[Any]) -> None:
        types = {c.name: c.type_name for c in table.columns}
        key = sql.SQL(", ").join(map(sql.Identifier, table.key))
        where = sql.SQL("")
        if last is not None:
            values = sql.SQL(", ").join(
                sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(types[name]))
                for name, value in zip(table.key, last, strict=True)
            )
            where = sql.SQL("WHERE ({}) > ({})").format(key, values)
        query = sql.SQL("COPY (SELECT {} FROM {} {} ORDER BY {} LIMIT {}) TO STDOUT (FORMAT csv)").format(
            sql.SQL(", ").join(sql.Identifier(c.name) for c in table.columns),
            table.sql_name(),
            where,
            key,
            sql.Literal(rows),
        )
        with self.origin.translated(), closing(self._connection.cursor()) as cursor:
            cursor.copy_expert(query, into)


def _read_cells(text: bytes, table: PgTable) -> pa.Table:
    names = [c.name for c in table.columns]
    if not text:
        return pa.table({name: pa.array([], pa.string()) for name in names})
    return pa_csv.read_csv(
        pa.BufferReader(text),
        read_options=pa_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
