# SPDX-License-Identifier: Apache-2.0
"""Stores the rows of one group of a source: checked as a whole first, then appended to all tables together.

A group can be stored again after a crash: its rows travel under a writer that names source and group, so that each
batch lands once.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from lakeward.client.routing import Router
from lakeward.client.rows import fit_rows
from lakeward.errors import InvalidRequest, OutOfSequence, TableNotFound
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.serve.declared import declared_bytes
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.hot.embedded.storerows import PendingAppend
from lakeward.model import Bucket, TableId, TableInfo, TablePath, fault_point
from lakeward.protocol.auth import Token
from lakeward.protocol.sources import Frame, FrameKind, read_frames

log = logging.getLogger(__name__)

FRAME_BYTES = 512 << 20
"""The most that one frame may unpack to."""


@dataclass(frozen=True)
class GroupFiles:
    """The files of a group in order."""

    paths: Sequence[Path]

    def frames(self) -> Iterator[tuple[Frame, bytes]]:
        for path in self.paths:
            with path.open("rb") as file:
                yield from read_frames(file, path.stat().st_size)


@dataclass
class GroupPut:
    """One pass over the group's frames. `check` changes nothing; `store` may be repeated after a crash."""

    store: EmbeddedStore
    source_id: str
    group: int
    rows: int = 0
    tables: set[str] = field(default_factory=set)
    _next: Counter[tuple[TableId, Bucket]] = field(default_factory=Counter)
    _pending: list[PendingAppend] = field(default_factory=list)

    @property
    def writer(self) -> int:
        digest = hashlib.blake2b(f"source\n{self.source_id}\n{self.group}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) >> 1

    def check(self, files: GroupFiles, token: Token) -> None:
        """Raises `InvalidRequest`, `InvalidRows`, `TableNotFound`, `Forbidden`."""
        checked: set[TablePath] = set()
        for frame, payload in files.frames():
            if frame.table not in checked:
                token.check_table(frame.table, f"rows of a source for {frame.table}")
                checked.add(frame.table)
            table = self.store.load_table(frame.table)
            if table.is_pk == (frame.kind is FrameKind.APPEND):
                reason = "it has a primary key" if table.is_pk else "it has no primary key"
                raise InvalidRequest(what=f"{frame.kind} of a source to {table.path}", reason=reason)
            if frame.kind is not FrameKind.TRUNCATE:
                Router(table, turn=0).check(_fitted(frame, payload, table))

    def apply(self, files: GroupFiles) -> None:
        """Durable when it returns. Readers who take log ends meanwhile wait, and see the group as a whole: ends are
        those of synced rows, so the lock is held until every bucket is synced."""
        with self.store.together:
            for frame, payload in files.frames():
                try:
                    table = self.store.load_table(frame.table)
                except TableNotFound:
                    log.warning("source %s: table %s was dropped under its rows", self.source_id, frame.table)
                    continue
                self.tables.add(str(table.path))
                if frame.kind is FrameKind.TRUNCATE:
                    self._truncate(table)
                    continue
                rows = _fitted(frame, payload, table)
                self.rows += rows.num_rows
                for bucket, batch in Router(table, turn=self.group).route(rows):
                    self._put(frame, table, bucket, batch)
                fault_point("source.frame-stored", table=str(frame.table))
            for pending in self._pending:
                pending.wait()

    def _put(self, frame: Frame, table: TableInfo, bucket: Bucket, batch: pa.RecordBatch) -> None:
        writer, store = self._sequence(table, bucket), self.store
        try:
            if frame.kind is FrameKind.APPEND:
                self._pending.append(store.begin_append(table, bucket, batch, writer))
            elif frame.kind is FrameKind.DELETE:
                self._pending.append(store.begin_delete(table, bucket, batch, writer))
            else:
                if frame.kind is FrameKind.UPDATE:
                    batch = _present(store, table, bucket, batch)
                self._pending.append(store.begin_upsert(table, bucket, batch, frame.columns, writer))
        except OutOfSequence as error:
            if error.got >= error.expected:
                raise
            # Stored before a crash, by so many batches that the log no longer lists this one.

    def _truncate(self, table: TableInfo) -> None:
        """Deletes every key. The last batch of a bucket carries the sequence, so that a repetition does not delete
        rows that the group stored behind it."""
        hot, names = self.store.hot_table(table), list(table.descriptor.primary_key)
        for hot_bucket in hot.opened():
            writer, bucket = self._sequence(table, hot_bucket.bucket), hot_bucket.bucket
            try:
                if hot_bucket.log.find_duplicate(writer) is not None:
                    continue
            except OutOfSequence:
                continue
            holder = f"truncate-{self.source_id}-{self.group}"
            kv = hot_bucket.kv(hot.schemas)
            snapshot = kv.take_snapshot(holder)
            none = pa.RecordBatch.from_pylist([], schema=pa.schema([kv_field(table, n) for n in names]))
            if snapshot is not None:
                try:
                    for batch in kv.read_snapshot(snapshot.snapshot_id, names):
                        self._pending.append(self.store.begin_delete(table, bucket, batch.select(names)))
                finally:
                    kv.snapshots.release(holder)
            self._pending.append(self.store.begin_delete(table, bucket, none, writer))

    def _sequence(self, table: TableInfo, bucket: Bucket) -> WriterSequence:
        sequence = self._next[table.table_id, bucket]
        self._next[table.table_id, bucket] += 1
        return WriterSequence(writer_id=self.writer, sequence=sequence)


def kv_field(table: TableInfo, name: str) -> pa.Field:
    from lakeward.model import to_arrow_type

    column = table.schema.column(name)
    return pa.field(name, to_arrow_type(column.type), nullable=column.type.nullable)


def _present(store: EmbeddedStore, table: TableInfo, bucket: Bucket, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows whose keys are stored."""
    keys = list(table.descriptor.primary_key)
    stored = store.lookup(table, bucket, batch.select(keys)).select(keys).to_pylist()
    present = {tuple(row.values()) for row in stored}
    mask = [tuple(row.values()) in present for row in batch.select(keys).to_pylist()]
    return batch if all(mask) else batch.filter(pa.array(mask, pa.bool_()))


def _fitted(frame: Frame, payload: bytes, table: TableInfo) -> pa.Table:
    names: Sequence[str] = table.schema.names if frame.columns is None else frame.columns
    if frame.kind is FrameKind.DELETE:
        names = table.descriptor.primary_key
    return fit_rows(_read_rows(payload, f"rows of a source for {table.path}"), table, names)


def _read_rows(payload: bytes, what: str) -> pa.Table:
    if declared_bytes(payload, what) > FRAME_BYTES:
        raise InvalidRequest(what=what, reason=f"a frame unpacks to more than {FRAME_BYTES} bytes; send smaller ones")
    try:
        with closing(pa.ipc.open_stream(pa.py_buffer(payload))) as stream:
            rows = stream.read_all()
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRequest(what=what, reason=f"a frame is not an Arrow stream: {error}") from error
    return rows
