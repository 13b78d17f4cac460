# SPDX-License-Identifier: Apache-2.0
"""Stores the rows of one HTTP request, and reports the outcome of each row."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from lakeward.client.routing import Router
from lakeward.client.rows import fit_rows, split_given
from lakeward.errors import IdempotencyKeyReused, InvalidRequest, InvalidRows, OutOfSequence
from lakeward.hot.embedded.log.appended import Appended, WriterSequence
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.drain import CallDrain
from lakeward.hot.embedded.serve.quota import WriterQuotas
from lakeward.hot.embedded.store import EmbeddedStore, PendingAppend
from lakeward.model.bucket import Bucket
from lakeward.model.offsets import OffsetMap
from lakeward.model.table import TableInfo, TablePath
from lakeward.protocol.auth import Token
from lakeward.protocol.flight import MAX_UNDER_WAY
from lakeward.protocol.writetoken import WriteToken
from lakeward.server.ingest.bodies import BodyRows, RowFormat, RowProblem, read_body, unpack

PLACE = "__place"
"""The column that carries a row's place in the body through routing. Columns of tables do not begin with `__`."""

REMEMBERED_KEYS = 10_000
"""Idempotency keys whose bodies are compared, so that a key that is used for other rows is refused."""

BYTES_PER_BYTE = 10
"""Memory that rows take while they are read, per byte of their body. Python objects of small JSON rows take that."""


MOST_PROBLEMS = 1_000
"""Rows of one request that may be refused while others are stored: looking for each of them takes time."""

MOST_REFUSED_BY_STORE = 50
"""Of them those that the store refuses: a batch is offered again without each."""


class RowOp(StrEnum):
    APPEND = "append"
    UPSERT = "upsert"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True)
class RowRequest:
    """`op` None: append to a log table, upsert into a PK table. `each`: rows that can be stored are stored, although
    others cannot; otherwise one bad row refuses the request."""

    path: TablePath
    body: bytes
    format: RowFormat
    encoding: str = ""
    op: RowOp | None = None
    each: bool = False
    key: str | None = None


@dataclass
class RowOutcomes:
    """`accepted` has an entry per stored row: its place, bucket and offset."""

    table: TableInfo
    accepted: list[tuple[int, Bucket, int]] = field(default_factory=list)
    problems: list[RowProblem] = field(default_factory=list)
    ends: dict[Bucket, int] = field(default_factory=dict)
    is_duplicate: bool = False

    @property
    def token(self) -> str:
        return str(WriteToken(table_id=self.table.table_id, offsets=OffsetMap(self.ends)))


@dataclass(frozen=True)
class _Run:
    """Rows that are stored with the same columns. None: all columns of the table."""

    rows: pa.Table
    columns: tuple[str, ...] | None


@dataclass(frozen=True)
class _Stored:
    places: list[int]
    bucket: Bucket
    put: PendingAppend


class RowIntake:
    """One per server. Thread-safe; `put` blocks until the rows are durable."""

    def __init__(
        self,
        store: EmbeddedStore,
        budget: MemoryBudget,
        writers: WriterQuotas,
        drain: CallDrain,
        max_body_bytes: int,
    ) -> None:
        self.store, self.budget, self.writers, self.drain = store, budget, writers, drain
        self.max_body_bytes = max_body_bytes
        self._keys: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, request: RowRequest, token: Token) -> RowOutcomes:
        """Raises `InvalidRows` for the first bad row unless `request.each`, and the errors of puts. After a retryable
        error rows may be stored: the same request with the same key stores each row once."""
        what = f"rows of {request.path}"
        with self.drain.inside():
            body = unpack(request.body, request.encoding, self.max_body_bytes)
            with self.budget.of(token.name).hold_most(BYTES_PER_BYTE * len(body), what):
                table = self.store.load_table(request.path)
                op = _checked_op(table, request.op)
                self._check_key(table, request, token, body)
                read = read_body(body, request.format, table.schema.columns, self.max_body_bytes)
                outcomes = RowOutcomes(table, problems=read.problems)
                if outcomes.problems and not request.each:
                    raise _first_problem(table, outcomes.problems)
                runs = _fit(read, table, op, outcomes.problems, request.each)
                _Writing(self, table, op, request, token, outcomes).store(runs)
                return outcomes

    def _check_key(self, table: TableInfo, request: RowRequest, token: Token, body: bytes) -> None:
        """Raises `IdempotencyKeyReused`. The hot store remembers which batches a key has stored, also across a restart;
        this remembers what they were."""
        if request.key is None:
            return
        name = (token.name, str(table.table_id), request.key)
        digest = hashlib.blake2b(f"{request.op}\n{request.format}\n".encode() + body, digest_size=16).digest()
        with self._lock:
            if self._keys.setdefault(name, digest) != digest:
                raise IdempotencyKeyReused(key=request.key[:100], table=str(table.path))
            self._keys.move_to_end(name)
            while len(self._keys) > REMEMBERED_KEYS:
                self._keys.popitem(last=False)


class _Writing:
    """The batches of one request on their way into the store."""

    def __init__(
        self, intake: RowIntake, table: TableInfo, op: RowOp, request: RowRequest, token: Token, outcomes: RowOutcomes
    ) -> None:
        self.intake, self.table, self.op, self.request, self.token = intake, table, op, request, token
        self.outcomes = outcomes
        self._writer = None if request.key is None else _writer_id(token, table, request.key)
        self._router = Router(table, turn=self._writer)
        self._next: Counter[Bucket] = Counter()
        self._refused_by_store = 0

    def store(self, runs: Sequence[_Run]) -> None:
        """Waits for all batches at the end, so that they share an fsync."""
        routed = [(run, *piece) for run in runs for piece in self._router.route(run.rows)]
        self._check_count([bucket for _, bucket, _ in routed])
        stored: list[_Stored] = []
        for run, bucket, batch in routed:
            try:
                stored += self._begin_rows(run, bucket, batch)
            except InvalidRows as error:
                self._finish(stored)
                reason = f"{error.reason}; {len(self.outcomes.accepted)} rows of the request are stored"
                raise InvalidRows(table=error.table, row=error.row, column=error.column, reason=reason) from error
        self._finish(stored)

    def _begin_rows(self, run: _Run, bucket: Bucket, batch: pa.RecordBatch) -> list[_Stored]:
        """The store refuses a whole batch for one row. Where each row counts, that row is left out; under a key it is
        not, since a retry must make the same batches."""
        while batch.num_rows:
            places = batch.column(PLACE).to_pylist()
            try:
                return [_Stored(places, bucket, self._begin(run, bucket, batch.drop_columns([PLACE])))]
            except InvalidRows as error:
                self._refused_by_store += 1
                is_last = self._refused_by_store > MOST_REFUSED_BY_STORE
                if not self.request.each or self._writer is not None or is_last:
                    raise error.at_row(places[error.row]) from error
                self.outcomes.problems.append(RowProblem(places[error.row], error.column, error.reason))
                rest = [batch.slice(0, error.row), batch.slice(error.row + 1)]
                batch = pa.concat_batches(rest)
        return []

    def _check_count(self, buckets: Sequence[Bucket]) -> None:
        """Raises `InvalidRequest` where the store would not remember all batches of a key."""
        most = max(Counter(buckets).values(), default=0)
        if self._writer is not None and most > MAX_UNDER_WAY:
            reason = (
                f"the rows make {most} batches for one bucket, and a request with an Idempotency-Key may have "
                f"{MAX_UNDER_WAY}; send fewer rows at once, rows that all give the same columns, or op=replace"
            )
            raise InvalidRequest(what=f"rows of {self.table.path}", reason=reason)

    def _begin(self, run: _Run, bucket: Bucket, batch: pa.RecordBatch) -> PendingAppend:
        store, writer = self.intake.store, self._sequence(bucket)
        try:
            if self.op is RowOp.APPEND:
                return store.begin_append(self.table, bucket, batch, writer)
            if self.op is RowOp.DELETE:
                return store.begin_delete(self.table, bucket, batch, writer)
            return store.begin_upsert(self.table, bucket, batch, run.columns, writer)
        except OutOfSequence as error:
            raise self._key_reused() from error

    def _sequence(self, bucket: Bucket) -> WriterSequence | None:
        if self._writer is None:
            return None
        sequence = self._next[bucket]
        self._next[bucket] += 1
        if sequence == 0:
            self.intake.writers.begin(self.token.name)
        return WriterSequence(writer_id=self._writer, sequence=sequence)

    def _finish(self, stored: Sequence[_Stored]) -> None:
        outcomes, finished = self.outcomes, [(s, s.put.wait()) for s in stored]
        for part, appended in finished:
            if appended.duplicate and not self.table.is_pk and appended.stop - appended.start != len(part.places):
                raise self._key_reused()
            outcomes.ends[part.bucket] = max(appended.stop, outcomes.ends.get(part.bucket, 0))
            offsets = self._offsets(part, appended)
            outcomes.accepted += [(p, part.bucket, o) for p, o in zip(part.places, offsets, strict=True)]
        outcomes.accepted.sort(key=lambda row: row[0])
        outcomes.is_duplicate = bool(finished) and all(appended.duplicate for _, appended in finished)

    def _offsets(self, part: _Stored, appended: Appended) -> Sequence[int]:
        """Of a PK table's row: the last offset of its batch, since a change makes one record or two."""
        if self.table.is_pk:
            return [appended.stop - 1] * len(part.places)
        return range(appended.start, appended.stop)

    def _key_reused(self) -> IdempotencyKeyReused:
        return IdempotencyKeyReused(key=(self.request.key or "")[:100], table=str(self.table.path))


def _checked_op(table: TableInfo, op: RowOp | None) -> RowOp:
    if op is None:
        return RowOp.UPSERT if table.is_pk else RowOp.APPEND
    if table.is_pk == (op is RowOp.APPEND):
        kind, ops = ("a primary key", "upsert, replace or delete") if table.is_pk else ("no primary key", "append")
        raise InvalidRequest(what=f"op={op} on {table.path}", reason=f"the table has {kind}: use op={ops}")
    return op


def _writer_id(token: Token, table: TableInfo, key: str) -> int:
    digest = hashlib.blake2b(f"{token.name}\n{table.table_id}\n{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


# ---- fitting ---------------------------------------------------------------------------------------------------------
def _fit(read: BodyRows, table: TableInfo, op: RowOp, problems: list[RowProblem], each: bool) -> list[_Run]:
    """Raises `InvalidRows` for the first row that does not fit, or where each row counts for too many of them."""
    runs: list[_Run] = []
    for names, columns, rows, places in _same_columns(read, table, op):

        def fit(part: Any, part_places: Sequence[int], names: Sequence[str] = names) -> pa.Table:
            fitted = fit_rows(part, table, names)
            Router(table, turn=0).check(fitted)
            return fitted.append_column(PLACE, pa.array(part_places, pa.int64()))

        fitted = _fit_rows(rows, places, fit, problems, each)
        if len(problems) > MOST_PROBLEMS:
            raise _first_problem(table, problems)
        if fitted is not None and fitted.num_rows:
            runs.append(_Run(fitted, columns))
    return runs


def _same_columns(
    read: BodyRows, table: TableInfo, op: RowOp
) -> list[tuple[Sequence[str], tuple[str, ...] | None, Any, list[int]]]:
    """Column names, the columns of a partial upsert, rows and their places: an upsert leaves columns that a row does
    not give as they are."""
    if op is RowOp.DELETE:
        return [(table.descriptor.primary_key, None, read.rows, read.places)]
    if op is not RowOp.UPSERT:
        return [(table.schema.names, None, read.rows, read.places)]
    return [
        (
            run.columns or table.schema.names,
            run.columns,
            run.rows,
            read.places[run.start : run.start + len(run.rows)],
        )
        for run in split_given(read.rows, table)
    ]


def _fit_rows(
    rows: Any,
    places: list[int],
    fit: Callable[[Any, Sequence[int]], pa.Table],
    problems: list[RowProblem],
    each: bool,
) -> pa.Table | None:
    """All rows at once; where some do not fit, by halves: a few bad rows among many cost a few more attempts."""
    try:
        return fit(rows, places)
    except InvalidRows as error:
        if not each:
            reason = f"{error.reason}; nothing is stored"
            raise InvalidRows(table=error.table, row=places[error.row], column=error.column, reason=reason) from error
        if len(places) == 1:
            problems.append(RowProblem(places[0], error.column, error.reason))
            return None
    half = len(places) // 2
    fitting = []
    for part in (slice(0, half), slice(half, None)):
        part_rows = rows.slice(part.start, len(places[part])) if isinstance(rows, pa.Table) else rows[part]
        if len(problems) <= MOST_PROBLEMS:
            fitted = _fit_rows(part_rows, places[part], fit, problems, each)
            fitting += [] if fitted is None else [fitted]
    return pa.concat_tables(fitting) if fitting else None


def _first_problem(table: TableInfo, problems: Sequence[RowProblem]) -> InvalidRows:
    first = min(problems, key=lambda p: p.row)
    reason = f"{first.reason}; {len({p.row for p in problems})} rows are refused, and nothing is stored"
    return InvalidRows(table=str(table.path), row=first.row, column=first.column, reason=reason)
