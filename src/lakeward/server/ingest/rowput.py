# SPDX-License-Identifier: Apache-2.0
"""Stores the rows of one HTTP request, and reports the outcome of each row."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakeward.client.routing import Router
from lakeward.config.options import SchemaContract
from lakeward.errors import IdempotencyKeyReused, InvalidRequest, InvalidRows, OutOfSequence
from lakeward.hot.embedded.log.writers import Appended, WriterSequence
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.drain import CallDrain
from lakeward.hot.embedded.serve.quota import WriterQuotas
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.hot.embedded.storerows import PendingAppend
from lakeward.model import Bucket, OffsetMap, TableInfo, TablePath
from lakeward.protocol.auth import Token
from lakeward.protocol.flight import MAX_UNDER_WAY
from lakeward.protocol.readplan import WriteToken
from lakeward.server.ingest.badrows import BadRows
from lakeward.server.ingest.bodies import BodyRows, RowFormat, RowProblem, read_body, unpack
from lakeward.server.ingest.contract import RowContract, StrictContract
from lakeward.server.ingest.fitting import PLACE, FittedRun, RowOp, first_problem, fit_body
from lakeward.server.ingest.rowtext import unknown_columns, without_null_names

REMEMBERED_KEYS = 10_000
"""Idempotency keys whose bodies are compared, so that a key that is used for other rows is refused."""

BYTES_PER_BYTE = 10
"""Memory that rows take while they are read, per byte of their body. Python objects of small JSON rows take that."""


MOST_REFUSED_BY_STORE = 30
"""Rows that the store refuses: a batch is offered again without each. A quarantine remembers as many puts of a key."""


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
    quarantined: Mapping[int, str] = field(default_factory=dict)
    """Place -> id of bad rows that the table's quarantine has."""

    added: tuple[str, ...] = ()
    """Columns that the table got for this request."""

    @property
    def token(self) -> str:
        return str(WriteToken(table_id=self.table.table_id, offsets=OffsetMap(self.ends)))


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
        contract: RowContract | None = None,
    ) -> None:
        self.store, self.budget, self.writers, self.drain = store, budget, writers, drain
        self.contract = contract or StrictContract()
        self.max_body_bytes = max_body_bytes
        self._keys: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, request: RowRequest, token: Token) -> RowOutcomes:
        """Raises `InvalidRows` for the first bad row unless `request.each` or the table quarantines them, and the
        errors of puts. After a retryable error rows may be stored: the same request with the same key stores each row
        once."""
        what = f"rows of {request.path}"
        with self.drain.inside():
            body = unpack(request.body, request.encoding, self.max_body_bytes)
            with self.budget.of(token.name).hold_most(BYTES_PER_BYTE * len(body), what):
                table = self.store.load_table(request.path)
                op = _checked_op(table, request.op)
                self._check_key(table, request, token, body)
                table, read, added = self._read(table, request.format, body)
                outcomes = RowOutcomes(table, problems=read.problems, added=added)
                bad = self._bad_rows(table, request, token, op, body)
                if outcomes.problems and bad is None and not request.each:
                    raise first_problem(table, outcomes.problems)
                earlier = set() if bad is None else set(bad.find_earlier())
                read.leave_out(earlier)
                runs = fit_body(read, table, op, outcomes.problems, request.each or bad is not None)
                if bad is not None:
                    _keep_bad_rows(bad, outcomes, earlier)
                _Writing(self, table, op, request, token, outcomes, bad).store(runs)
                return outcomes

    def _read(self, table: TableInfo, kind: RowFormat, body: bytes) -> tuple[TableInfo, BodyRows, tuple[str, ...]]:
        """With the names of columns that were added for the body. Arrow has types of its own, and is read strictly."""
        read = read_body(body, kind, table.schema.columns, self.max_body_bytes)
        if kind is RowFormat.ARROW or self.contract.of(table) is not SchemaContract.EVOLVE:
            return table, read, ()
        new_columns = unknown_columns(read, table.schema.names)
        if new_columns:
            table = self.contract.add_columns(table, new_columns)
            read = read_body(body, kind, table.schema.columns, self.max_body_bytes)
        without_null_names(read, table.schema.names)
        return table, read, tuple(c.name for c in new_columns if c.name in table.schema.names)

    def _bad_rows(self, table: TableInfo, request: RowRequest, token: Token, op: RowOp, body: bytes) -> BadRows | None:
        if request.format is RowFormat.ARROW or self.contract.of(table) is not SchemaContract.QUARANTINE:
            return None
        source = "http" if request.key is None else f"http, key {request.key}"
        writer = None if request.key is None else _writer_id(token, table, f"quarantine\n{request.key}")
        return BadRows(self.contract, table, body, request.format, source, str(op), writer)

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
        self,
        intake: RowIntake,
        table: TableInfo,
        op: RowOp,
        request: RowRequest,
        token: Token,
        outcomes: RowOutcomes,
        bad: BadRows | None = None,
    ) -> None:
        self.intake, self.table, self.op, self.request, self.token = intake, table, op, request, token
        self.outcomes, self.bad = outcomes, bad
        self._writer = None if request.key is None else _writer_id(token, table, request.key)
        self._router = Router(table, turn=self._writer)
        self._next: Counter[Bucket] = Counter()
        self._refused_by_store = 0

    def store(self, runs: Sequence[FittedRun]) -> None:
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

    def _begin_rows(self, run: FittedRun, bucket: Bucket, batch: pa.RecordBatch) -> list[_Stored]:
        """The store refuses a whole batch for one row. Where each row counts, that row is left out; under a key only
        once the quarantine has it, since a retry must make the same batches."""
        writer = self._sequence(bucket)
        while batch.num_rows:
            places = batch.column(PLACE).to_pylist()
            try:
                return [_Stored(places, bucket, self._begin(run, bucket, batch.drop_columns([PLACE]), writer))]
            except InvalidRows as error:
                self._refused_by_store += 1
                is_last = self._refused_by_store > MOST_REFUSED_BY_STORE
                problem = RowProblem(places[error.row], error.column, error.reason)
                if is_last or not (self._is_kept(problem) or (self.request.each and self._writer is None)):
                    raise error.at_row(places[error.row]) from error
                self.outcomes.problems.append(problem)
                rest = [batch.slice(0, error.row), batch.slice(error.row + 1)]
                batch = pa.concat_batches(rest)
        self._next[bucket] -= 1  # no row was left to put
        return []

    def _is_kept(self, problem: RowProblem) -> bool:
        return self.bad is not None and self.bad.keep([problem])

    def _check_count(self, buckets: Sequence[Bucket]) -> None:
        """Raises `InvalidRequest` where the store would not remember all batches of a key."""
        most = max(Counter(buckets).values(), default=0)
        if self._writer is not None and most > MAX_UNDER_WAY:
            reason = (
                f"the rows make {most} batches for one bucket, and a request with an Idempotency-Key may have "
                f"{MAX_UNDER_WAY}; send fewer rows at once, rows that all give the same columns, or op=replace"
            )
            raise InvalidRequest(what=f"rows of {self.table.path}", reason=reason)

    def _begin(
        self, run: FittedRun, bucket: Bucket, batch: pa.RecordBatch, writer: WriterSequence | None
    ) -> PendingAppend:
        store = self.intake.store
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
        """For a row of a PK table: the last offset of its batch, since a change makes one record or two."""
        if self.table.is_pk:
            return [appended.stop - 1] * len(part.places)
        return range(appended.start, appended.stop)

    def _key_reused(self) -> IdempotencyKeyReused:
        return IdempotencyKeyReused(key=(self.request.key or "")[:100], table=str(self.table.path))


def _keep_bad_rows(bad: BadRows, outcomes: RowOutcomes, earlier: Collection[int]) -> None:
    """Before the other rows are stored: a retry after a crash in between leaves out the same rows. Raises
    `InvalidRows` where an earlier try stored a row that does not fit now, as after a change of columns."""
    changed = [p for p in outcomes.problems if earlier and p.row not in earlier]
    if changed:
        raise first_problem(outcomes.table, changed)
    bad_rows = {p.row for p in outcomes.problems}
    reason = "an earlier try of this request put it into the quarantine"
    outcomes.problems += [RowProblem(place, "", reason) for place in earlier if place not in bad_rows]
    outcomes.quarantined = bad.ids
    bad.keep(outcomes.problems)


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
