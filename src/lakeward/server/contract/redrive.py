# SPDX-License-Identifier: Apache-2.0
"""Writes rows of a quarantine to their table, each once, whatever crashes.

The quarantine's log holds the protocol: a record with the whole batch is durable before its first put, every put has a
writer of its own that the table's log knows, and a record for each row says afterwards that it is done. A batch without
that end is finished by the next call: puts that are there already are found by their writers.
"""

from __future__ import annotations

import csv
import io
import json
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.client.routing import Router
from lakeward.errors import InvalidInput, InvalidRequest, InvalidRows, PartitionExpired
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.hot.embedded.storerows import PendingAppend
from lakeward.model import TableId, TableInfo, TablePath, fault_point
from lakeward.protocol.quarantine import QuarantinedRow, QuarantineList, Redriven, RedriveRows
from lakeward.server.contract.batch import Piece, RedriveBatch
from lakeward.server.contract.quarantine import Quarantine
from lakeward.server.contract.quarantinetable import (
    BUCKET,
    RowState,
    from_record,
    quarantine_path,
    state_records,
)
from lakeward.server.ingest.bodies import RowFormat, RowProblem, read_body
from lakeward.server.ingest.fitting import PLACE, RowOp, fit_body

MOST_ROWS = 10_000
"""Rows that one call looks at; the answer says how many are left."""

MOST_BODY_BYTES = 64 << 20

ReadQuarantine = Callable[[TablePath, Sequence[str]], Iterator[pa.RecordBatch]]
"""A union read of a quarantine table: lake and hot store."""


class Redriver:
    """One per server. Calls for one table go one after the other."""

    def __init__(self, quarantine: Quarantine, read: ReadQuarantine) -> None:
        self._quarantine, self._read = quarantine, read
        self._store: EmbeddedStore = quarantine.store
        self._locks: defaultdict[TableId, threading.Lock] = defaultdict(threading.Lock)

    def list_rows(self, path: TablePath, limit: int) -> QuarantineList:
        self._store.load_table(path)
        own = quarantine_path(path)
        if self._quarantine.find_table(path) is None:
            return QuarantineList(path=path, quarantine=own)
        waiting, redriven = self._find_waiting(own)
        rows = self._load_rows(own, waiting[:limit])
        return QuarantineList(path=path, quarantine=own, waiting=len(waiting), redriven=len(redriven), rows=tuple(rows))

    def redrive(self, path: TablePath, request: RedriveRows) -> Redriven:
        """Raises `InvalidRequest` for ids that never waited, and the errors of puts. Safe to repeat after any failure:
        named rows that an earlier call wrote are answered as redriven, and not written again."""
        table = self._store.load_table(path)
        quarantine = self._quarantine.find_table(path)
        if quarantine is None:
            raise InvalidRequest(what=f"redrive of {path}", reason="it has no quarantine: every row was stored")
        with self._locks[table.table_id]:
            finished = self._finish_open(table, quarantine)
            waiting, redriven = self._find_waiting(quarantine.path)
            named = set(request.ids) | request.corrected.keys()
            if unknown := named - set(waiting) - set(redriven):
                reason = f"no such row waits there; `lakeward quarantine list {path}` shows those that do"
                raise InvalidRequest(what=f"row {min(unknown)} of {quarantine.path}", reason=reason)
            chosen = [i for i in waiting if not named or i in named][:MOST_ROWS]
            rows = [
                replace(row, bad=replace(row.bad, row=request.corrected.get(row.id, row.bad.row)))
                for row in self._load_rows(quarantine.path, chosen)
            ]
            pieces, refused = plan_pieces(table, rows)
            written: list[str] = []
            if pieces:
                batch = RedriveBatch(
                    id=uuid.uuid4().hex,
                    started_at_ms=self._quarantine.clock.now_ms(),
                    schema_id=table.schema.schema_id,
                    pieces=tuple(pieces),
                )
                self._record(quarantine, batch)
                written, more = self._write(table, quarantine, batch, is_first=True)
                refused |= more
            earlier = [i for i in redriven if i in named] if named else finished
            done = (*earlier, *written)
            return Redriven(path=path, redriven=done, refused=refused, waiting=len(waiting) - len(chosen))

    # ---- the quarantine's records --------------------------------------------------------------------------------
    def _find_waiting(self, quarantine: TablePath) -> tuple[list[str], list[str]]:
        """Ids in the order in which they came, and those of redriven rows."""
        records = self._table(quarantine, ["id", "state"])
        ids, states = records.column("id"), records.column("state")
        done = ids.filter(pc.equal(states, str(RowState.REDRIVEN)))
        came = ids.filter(pc.equal(states, str(RowState.WAITING)))
        is_done = pc.is_in(came, value_set=done)  # batches have an end of their own, under their ids
        return pc.unique(came.filter(pc.invert(is_done))).to_pylist(), pc.unique(came.filter(is_done)).to_pylist()

    def _load_rows(self, quarantine: TablePath, ids: Sequence[str]) -> list[QuarantinedRow]:
        rows: dict[str, QuarantinedRow] = {}
        for record in self._records(quarantine, ids, RowState.WAITING):
            rows.setdefault(record["id"], from_record(record))
        return [rows[i] for i in ids if i in rows]

    def _records(self, quarantine: TablePath, ids: Sequence[str], state: RowState) -> Iterator[dict[str, Any]]:
        value_set = pa.array(ids, pa.string())
        names = ["id", "state", "at", "source", "row_number", "operation", "format", "column_name", "reason", "row"]
        for batch in self._read(quarantine, names) if ids else ():
            is_one = pc.and_(
                pc.is_in(batch.column("id"), value_set=value_set), pc.equal(batch.column("state"), str(state))
            )
            yield from batch.filter(is_one).to_pylist()

    def _table(self, quarantine: TablePath, names: list[str]) -> pa.Table:
        schema = pa.schema([(name, pa.string()) for name in names])
        return pa.Table.from_batches([b.select(names).cast(schema) for b in self._read(quarantine, names)], schema)

    def _record(self, quarantine: TableInfo, batch: RedriveBatch) -> None:
        records = state_records([batch.id], RowState.REDRIVING, self._quarantine.clock.now_ms(), [batch.to_text()])
        self._store.append(quarantine, BUCKET, records, WriterSequence(batch.writer_id(-1), batch.version))

    # ---- puts ----------------------------------------------------------------------------------------------------
    def _finish_open(self, table: TableInfo, quarantine: TableInfo) -> list[str]:
        """Ids of a batch that an earlier call left."""
        records = self._table(quarantine.path, ["id", "state"])
        ids, states = records.column("id"), records.column("state")
        begun = ids.filter(pc.equal(states, str(RowState.REDRIVING)))
        ended = ids.filter(pc.equal(states, str(RowState.REDRIVEN)))
        open_ids = pc.unique(begun.filter(pc.invert(pc.is_in(begun, value_set=ended)))).to_pylist()
        newest: dict[str, RedriveBatch] = {}
        for record in self._records(quarantine.path, open_ids, RowState.REDRIVING):
            batch = RedriveBatch.from_text(record["row"])
            if batch.id not in newest or batch.version > newest[batch.id].version:
                newest[batch.id] = batch
        return [i for batch in newest.values() for i in self._write(table, quarantine, batch, is_first=False)[0]]

    def _write(
        self, table: TableInfo, quarantine: TableInfo, batch: RedriveBatch, *, is_first: bool
    ) -> tuple[list[str], dict[str, str]]:
        """The ids that are in the table now, and why others are not."""
        sent = self._store.hot_table(table).at_schema(batch.schema_id)
        age_ms = 0 if is_first else max(1, self._quarantine.clock.now_ms() - batch.started_at_ms)
        refused: dict[str, str] = {}
        puts: list[PendingAppend] = []
        for number in range(len(batch.pieces)):
            writer = WriterSequence(batch.writer_id(number), 0, age_ms)
            while batch.pieces[number].ids:
                try:
                    puts.append(_begin(self._store, sent, batch.pieces[number], writer))
                    break
                except InvalidRows as error:  # of one row: its put was not made, so it may be made without the row
                    refused[batch.pieces[number].ids[error.row]] = f"{error.column}: {error.reason}"
                    batch = batch.without(number, error.row)
                    self._record(quarantine, batch)
                except (InvalidInput, PartitionExpired) as error:
                    refused |= dict.fromkeys(batch.pieces[number].ids, str(error))
                    batch = batch.without(number)
                    self._record(quarantine, batch)
        for put in puts:
            put.wait()
        fault_point("quarantine.between-redrive-and-record", table=str(table.path))
        ids = [*batch.ids, batch.id]
        records = state_records(ids, RowState.REDRIVEN, self._quarantine.clock.now_ms())
        self._store.append(quarantine, BUCKET, records, WriterSequence(batch.writer_id(-2), 0, age_ms))
        return batch.ids, refused


def _begin(store: EmbeddedStore, table: TableInfo, piece: Piece, writer: WriterSequence) -> PendingAppend:
    if piece.op is RowOp.APPEND:
        return store.begin_append(table, piece.bucket, piece.rows, writer)
    if piece.op is RowOp.DELETE:
        return store.begin_delete(table, piece.bucket, piece.rows, writer)
    return store.begin_upsert(table, piece.bucket, piece.rows, piece.columns, writer)


# ---- planning --------------------------------------------------------------------------------------------------------
def plan_pieces(table: TableInfo, rows: Sequence[QuarantinedRow]) -> tuple[list[Piece], dict[str, str]]:
    """The puts for the rows that fit now, and id -> why the others do not."""
    refused: dict[str, str] = {}
    pieces: list[Piece] = []
    groups: defaultdict[tuple[RowOp, RowFormat, tuple[str, ...]], list[QuarantinedRow]] = defaultdict(list)
    for row in rows:
        try:
            groups[_group(table, row)].append(row)
        except ValueError as error:
            refused[row.id] = str(error)
    for (op, kind, names), members in groups.items():
        body = _body(kind, names, members)
        problems: list[RowProblem] = []
        read = read_body(body, kind, table.schema.columns, MOST_BODY_BYTES)
        problems += read.problems
        ids = [row.id for row in members]
        runs = fit_body(read, table, op, problems, each=True)
        for problem in reversed(problems):
            refused[ids[problem.row]] = f"{problem.column}: {problem.reason}" if problem.column else problem.reason
        router = Router(table, turn=0)
        for run in runs:
            for bucket, batch in router.route(run.rows):
                chosen = tuple(ids[place] for place in batch.column(PLACE).to_pylist())
                rest = batch.drop_columns([PLACE])
                pieces.append(Piece(op=op, bucket=bucket, columns=run.columns, ids=chosen, rows=rest))
    return pieces, refused


def _group(table: TableInfo, row: QuarantinedRow) -> tuple[RowOp, RowFormat, tuple[str, ...]]:
    """Raises `ValueError`."""
    op = RowOp(row.operation)
    if table.is_pk == (op is RowOp.APPEND):
        raise ValueError(f"its operation is {op}, which the table does not take")
    body: Any = json.loads(row.bad.row)
    if not isinstance(body, dict):
        raise ValueError("a row is one JSON object; correct it")
    if all(value is None for value in body.values()):
        raise ValueError("it has no value")
    return (op, RowFormat.CSV, tuple(body)) if row.bad.format == "csv" else (op, RowFormat.LINES, ())


def _body(kind: RowFormat, names: Sequence[str], rows: Sequence[QuarantinedRow]) -> bytes:
    if kind is RowFormat.LINES:
        return b"\n".join(b" ".join(row.bad.row.encode().splitlines()) for row in rows)
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(names)
    for row in rows:
        cells: Mapping[str, Any] = json.loads(row.bad.row)
        text.write(",".join(_cell(cells[name]) for name in names) + "\n")
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    """A null is an empty cell, an empty text a quoted one."""
    if value is None:
        return ""
    escaped = (value if isinstance(value, str) else json.dumps(value)).replace('"', '""')
    return f'"{escaped}"'
