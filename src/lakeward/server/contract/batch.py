# SPDX-License-Identifier: Apache-2.0
"""A batch of rows that go from a quarantine to their table: the puts it consists of, as text that is stored before the
first of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.model import Bucket, typed
from lakeward.server.ingest.fitting import RowOp


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One put: it is stored whole or not at all. `ids` are its rows', in order."""

    op: RowOp
    bucket: Bucket
    columns: tuple[str, ...] | None
    ids: tuple[str, ...]
    rows: pa.RecordBatch

    def without(self, row: int) -> Piece:
        rest = pa.concat_batches([self.rows.slice(0, row), self.rows.slice(row + 1)])
        return replace(self, ids=(*self.ids[:row], *self.ids[row + 1 :]), rows=rest)


@dataclass(frozen=True, kw_only=True)
class RedriveBatch:
    """`version` grows when a row is taken out before its put: a put of another version is another put."""

    id: str
    started_at_ms: int
    schema_id: int
    pieces: tuple[Piece, ...]
    version: int = 0

    def writer_id(self, piece: int) -> int:
        digest = hashlib.blake2b(f"redrive\n{self.id}\n{piece}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) >> 1

    @property
    def ids(self) -> list[str]:
        return [i for piece in self.pieces for i in piece.ids]

    def without(self, piece: int, row: int | None = None) -> RedriveBatch:
        """Without one row of a piece, or without all of them."""
        old = self.pieces[piece]
        shorter = replace(old, ids=(), rows=old.rows.slice(0, 0)) if row is None else old.without(row)
        pieces = (*self.pieces[:piece], shorter, *self.pieces[piece + 1 :])
        return replace(self, pieces=pieces, version=self.version + 1)

    def to_text(self) -> str:
        pieces = [
            {
                "op": str(p.op),
                "partition": p.bucket.partition,
                "bucket": p.bucket.number,
                "columns": p.columns,
                "ids": p.ids,
                "rows": _to_text(p.rows),
            }
            for p in self.pieces
        ]
        body = {"id": self.id, "started_at_ms": self.started_at_ms, "schema_id": self.schema_id, "pieces": pieces}
        return json.dumps({**body, "version": self.version})

    @classmethod
    def from_text(cls, text: str) -> RedriveBatch:
        """Raises `InvalidRequest`, or `InvalidTable` for a record that Lakeward did not write."""
        try:
            body = json.loads(text)
            pieces = tuple(_piece(p) for p in typed(list, body["pieces"], "pieces"))
            return cls(
                id=typed(str, body["id"], "id"),
                started_at_ms=int(body["started_at_ms"]),
                schema_id=typed(int, body["schema_id"], "schema id"),
                pieces=pieces,
                version=typed(int, body["version"], "version"),
            )
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise InvalidRequest(what="redrive", reason=f"its record cannot be read: {error}") from error


def _piece(body: dict[str, Any]) -> Piece:
    columns: Sequence[str] | None = body["columns"]
    with pa.ipc.open_stream(base64.b64decode(typed(str, body["rows"], "rows"))) as stream:
        rows = stream.read_next_batch()
    rows.validate(full=True)
    return Piece(
        op=RowOp(body["op"]),
        bucket=Bucket(typed(str, body["partition"], "partition"), typed(int, body["bucket"], "bucket")),
        columns=None if columns is None else tuple(typed(str, c, "column") for c in columns),
        ids=tuple(typed(str, i, "id") for i in body["ids"]),
        rows=rows,
    )


def _to_text(rows: pa.RecordBatch) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return base64.b64encode(sink.getvalue()).decode()
