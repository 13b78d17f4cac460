# SPDX-License-Identifier: Apache-2.0
"""Brings a file's rows into a table, chunk by chunk, under a writer and sequences that a resumed write repeats."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.cli.files.filerows import BadText, FileRows, Place, Rejects
from lakeward.cli.files.journal import WriteJournal
from lakeward.cli.files.problems import SHOWN_LINES, Problem
from lakeward.client.routing import Router
from lakeward.client.sender import Outgoing, PutSender
from lakeward.errors import InvalidRequest, InvalidRows, OutOfSequence
from lakeward.model import Bucket
from lakeward.protocol.flight import PutAck, PutKind
from lakeward.protocol.readplan import WriteToken

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.client.table import Columns, Table

Advance = Callable[[int, float | None], None]
"""Hears of rows that are done, and how much of the file has been read."""

Runs = list[tuple["Columns", "pa.Table"]]


@dataclass
class _Piece:
    """A batch on its way to a bucket. `stored` once the server has it."""

    bucket: Bucket
    batch: pa.RecordBatch
    sequence: int
    stored: bool = False


class FileWrite:
    """`stored`: rows of the file that the server has for sure; `last`: the place of the last of them."""

    def __init__(self, table: Table, kind: PutKind, journal: WriteJournal, *, replace: bool = False) -> None:
        self.table, self.kind, self.journal, self.replace = table, kind, journal, replace
        self.stored = 0
        self.before = 0
        """Rows that an earlier run of this write had stored."""
        self.last: Place | None = None
        self.is_under_way = False
        """A chunk was sent and not yet acknowledged whole: the server may have rows of it."""
        self.token: WriteToken | None = None
        self._router = Router(table.info, turn=0)
        self._next: dict[Bucket, int] = {}
        self._senders: dict[Columns, PutSender] = {}

    def check(self, chunks: Iterable[FileRows], rejects: Rejects) -> int:
        """Every row is looked at, none is sent. Raises `InvalidRequest` with all that cannot be taken."""
        rows = 0
        for chunk in chunks:
            for _, fitted in self._fit(chunk, rejects)[0]:
                self._router.check(fitted)
            rows += len(chunk)
        return rows

    def run(self, chunks: Iterable[FileRows], rejects: Rejects, advance: Advance) -> None:
        """Raises `InvalidRequest` for rows that cannot be taken: the chunks before the first are stored, no other."""
        try:
            for index, chunk in enumerate(chunks):
                runs, accepted_rows = self._fit(chunk, rejects)
                if index < len(self.journal.digests):
                    rejects.forget()
                else:
                    rejects.flush(f"{self.journal.writer}-{index}")
                if rejects.is_refused:
                    continue  # the rest is read for its problems
                pieces = [(columns, self._route(fitted)) for columns, fitted in runs]
                digest = _digest(runs)
                if index < len(self.journal.digests):
                    self._pass_over(accepted_rows, digest, self.journal.digests[index])
                else:
                    self.is_under_way = True
                    for columns, part in pieces:
                        self._send(columns, part)
                    self.journal.add(digest)
                    self.stored += len(accepted_rows)
                    self.is_under_way = False
                advance(len(accepted_rows), chunk.part)
                self.last = accepted_rows.place(len(accepted_rows) - 1) if len(accepted_rows) else self.last
            rejects.flush(f"{self.journal.writer}-end")
        finally:
            for sender in self._senders.values():
                sender.close()

    def _fit(self, chunk: FileRows, rejects: Rejects) -> tuple[Runs, FileRows]:
        before = rejects.count
        while True:
            if not rejects.is_skipping and rejects.count - before >= SHOWN_LINES:
                return [], chunk
            try:
                return self.table.fit_given(self.kind, chunk.rows, None, replace=self.replace), chunk
            except InvalidRows as error:
                where = chunk.place(error.row)
                place = Place(where.file, where.unit, where.number, error.column)
                if not isinstance(chunk.rows, list) and error.column not in self.table.info.schema.names:
                    rejects.refuse(place, error.reason)
                rejects.add(place, "", error.reason, Problem(error.reason, error.reason), _text(chunk, error.row))
                chunk = chunk.without(error.row)

    def _pass_over(self, chunk: FileRows, digest: str, known: str) -> None:
        if digest != known:
            reason = (
                f"the {len(chunk):,} rows up to here are not those that the stopped write stored; "
                f"write the file without --resume"
            )
            raise InvalidRequest(what=str(chunk.place(len(chunk) - 1)), reason=reason)
        self.before += len(chunk)

    def _route(self, fitted: pa.Table) -> list[_Piece]:
        pieces = []
        for bucket, batch in self._router.route(fitted):
            sequence = self._next.get(bucket, 0)
            self._next[bucket] = sequence + 1
            pieces.append(_Piece(bucket, batch, sequence))
        return pieces

    def _send(self, columns: Columns, pieces: list[_Piece]) -> None:
        while waiting := [p for p in pieces if not p.stored]:
            sender = self._senders.pop(columns, None) or self._new_sender(columns)
            outgoing = (Outgoing(p.bucket, p.batch, self._acknowledger(p), p.sequence) for p in waiting)
            try:
                sender.drive(lambda: next(outgoing, None))  # noqa: B023 - used at once
                self._senders[columns] = sender
            except OutOfSequence as error:
                if error.got >= error.expected:
                    raise
                for piece in waiting:  # an earlier run had them stored and did not hear of it
                    piece.stored |= str(piece.bucket) == error.bucket and piece.sequence < error.expected

    def _new_sender(self, columns: Columns) -> PutSender:
        return PutSender(
            self.table.client.store.connection, self.table.info, self.kind, columns, writer=self.journal.writer
        )

    def _acknowledger(self, piece: _Piece) -> Callable[[PutAck], None]:
        def done(ack: PutAck) -> None:
            piece.stored = True
            token = self.table.token([(piece.bucket, ack)])
            self.token = token if self.token is None else self.token.merged(token)

        return done


def _text(chunk: FileRows, row: int) -> BadText:
    """The text of a row whose values are already converted."""
    values = chunk.rows[row] if isinstance(chunk.rows, list) else chunk.rows.slice(row, 1).to_pylist()[0]
    return json.dumps(values, default=lambda v: v.hex() if isinstance(v, bytes) else str(v)), "json"


def _digest(runs: Runs) -> str:
    """Digest of the rows as the table has them: a file that only spells the same rows differently is the same."""
    import pyarrow as pa

    digest = hashlib.sha256()
    for columns, fitted in runs:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, fitted.schema) as out:
            out.write_table(fitted.combine_chunks())
        digest.update(repr(columns).encode())
        digest.update(sink.getvalue())
    return digest.hexdigest()[:32]
