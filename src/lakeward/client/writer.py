# SPDX-License-Identifier: Apache-2.0
"""A writer that gathers rows and sends them in the background, in the order they were given."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.client.sender import Outgoing, PutSender
from lakeward.errors import InvalidRequest, LakewardError
from lakeward.model import Bucket
from lakeward.protocol.flight import PutAck, PutKind
from lakeward.protocol.readplan import WriteToken

if TYPE_CHECKING:
    from lakeward.client.table import Table

Columns = tuple[str, ...] | None
Lane = tuple[PutKind, Columns]
MIB = 1024 * 1024


@dataclass
class _Group:
    """Rows that go out together: of one kind, gathered until they are many, big or old enough."""

    lane: Lane
    began_at: float
    parts: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    acks: list[tuple[Bucket, PutAck]] = field(default_factory=list)
    unsent: int = 0
    future: Future[WriteToken] = field(default_factory=Future)
    closed: bool = False


class BufferedWriter:
    """Use it as a context manager: leaving it sends what is left and raises what went wrong.

    A group goes out at `max_rows`, at `max_bytes`, or `linger_s` after its first row; what is not given comes from the
    `client.writer.*` options. More than `max_pending_bytes` unsent make the caller wait. Threads may share it."""

    def __init__(
        self,
        table: Table,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        linger_s: float | None = None,
        max_pending_bytes: int = 64 * MIB,
    ) -> None:
        options = table.client.options
        self.table = table
        self.max_rows = options.batch_rows if max_rows is None else max_rows
        self.max_bytes = options.batch_bytes if max_bytes is None else max_bytes
        self.linger_s = options.linger_s if linger_s is None else linger_s
        self.max_pending_bytes = max_pending_bytes
        self._changed = threading.Condition()
        self._groups: deque[_Group] = deque()
        self._pending_bytes = 0
        self._in_work = 0
        self._flushing = 0
        self._closing = False
        self._error: LakewardError | None = None
        self._last: WriteToken | None = None
        self._senders: dict[Lane, PutSender] = {}
        self._thread = threading.Thread(target=self._run, name=f"lakeward-writer-{table.path}", daemon=True)
        self._thread.start()

    def append(self, rows: Any) -> Future[WriteToken]:
        """Takes rows now (`InvalidRows` is raised at once) and sends them soon; the future holds the write's token."""
        return self._add(PutKind.APPEND, rows, None)

    def upsert(self, rows: Any, columns: Columns = None, *, replace: bool = False) -> Future[WriteToken]:
        """As `Table.upsert`: columns that a row does not give stay as they are, unless `replace` is set."""
        return self._add(PutKind.UPSERT, rows, columns, replace=replace)

    def delete(self, keys: Any) -> Future[WriteToken]:
        return self._add(PutKind.DELETE, keys, None)

    def flush(self) -> WriteToken | None:
        """Waits until everything given so far is stored; the token of all of it. Raises the first error since the last
        flush.
        """
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._groups and not self._in_work)
            self._flushing -= 1
            error, self._error = self._error, None
            if error is not None:
                raise error
            return self._last

    def close(self) -> None:
        """Flushes and ends the background thread. Safe to repeat."""
        try:
            if not self._closing:
                self.flush()
        finally:
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            self._thread.join()
            for sender in self._senders.values():
                sender.close()

    def __enter__(self) -> BufferedWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- the caller's side -------------------------------------------------------------------------------------------
    def _add(self, kind: PutKind, rows: Any, columns: Columns, *, replace: bool = False) -> Future[WriteToken]:
        runs = self.table.fit_given(kind, rows, columns, replace=replace)
        for _, fitted in runs:
            self.table.router.check(fitted)
        return _joined([self._add_run((kind, given), fitted) for given, fitted in runs])

    def _add_run(self, lane: Lane, fitted: pa.Table) -> Future[WriteToken]:
        size = max(1, fitted.nbytes)
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._pending_bytes < self.max_pending_bytes)
            if self._closing:
                raise InvalidRequest(what=f"write to {self.table.path}", reason="the writer is closed")
            group = self._open_group(lane)
            group.parts.append(fitted)
            group.rows, group.bytes = group.rows + fitted.num_rows, group.bytes + size
            self._pending_bytes += size
            self._changed.notify_all()
            return group.future

    def _open_group(self, lane: Lane) -> _Group:
        if (
            not self._groups
            or self._groups[-1].lane != lane
            or self._groups[-1].closed
            or self._is_full(self._groups[-1])
        ):
            self._groups.append(_Group(lane, time.monotonic()))
        return self._groups[-1]

    # ---- the background thread's side --------------------------------------------------------------------------------
    def _run(self) -> None:
        while (group := self._wait_for_ripe()) is not None:
            self._send([group])

    def _send(self, groups: list[_Group]) -> None:
        """Sends a group, and those of the same lane that ripen meanwhile, so that the stream never runs dry."""
        lane, outgoing = groups[0].lane, deque[Outgoing]()

        def take() -> Outgoing | None:
            while not outgoing:
                more = self._take_ripe(lane)
                if more is None:
                    return None
                groups.append(more)
                outgoing.extend(self._route(more))
            return outgoing.popleft()

        try:
            outgoing.extend(self._route(groups[0]))
            sender = self._senders.get(lane) or self._senders.setdefault(lane, self.table.new_sender(*lane))
            sender.drive(take)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait for it must hear of it
            self._fail(groups, error)

    def _route(self, group: _Group) -> list[Outgoing]:
        rows = pa.concat_tables(group.parts)
        group.parts.clear()
        batches = list(self.table.route(rows))
        group.unsent = len(batches)
        if not batches:
            self._finish(group)
        return [Outgoing(bucket, batch, self._acknowledger(group, bucket)) for bucket, batch in batches]

    def _acknowledger(self, group: _Group, bucket: Bucket) -> Any:
        def done(ack: PutAck) -> None:
            group.acks.append((bucket, ack))
            group.unsent -= 1
            if not group.unsent:
                self._finish(group)

        return done

    def _finish(self, group: _Group) -> None:
        token = self.table.token(group.acks)
        with self._changed:
            self._last = token if self._last is None else self._last.merged(token)
            self._release(group)
        group.future.set_result(token)

    def _fail(self, groups: list[_Group], error: Exception) -> None:
        typed = (
            error
            if isinstance(error, LakewardError)
            else InvalidRequest(what=f"write to {self.table.path}", reason=repr(error))
        )
        failed = [g for g in groups if not g.future.done()]
        with self._changed:
            self._error = self._error or typed
            for group in failed:
                self._release(group)
        for group in failed:
            group.future.set_exception(typed)

    def _release(self, group: _Group) -> None:
        self._in_work -= 1
        self._pending_bytes -= group.bytes
        self._changed.notify_all()

    def _wait_for_ripe(self) -> _Group | None:
        with self._changed:
            while True:
                if self._groups and self._is_ripe(self._groups[0]):
                    return self._pop()
                if self._closing and not self._groups:
                    return None
                self._changed.wait(
                    self._groups[0].began_at + self.linger_s - time.monotonic() if self._groups else None
                )

    def _take_ripe(self, lane: Lane) -> _Group | None:
        with self._changed:
            if self._groups and self._groups[0].lane == lane and self._is_ripe(self._groups[0]):
                return self._pop()
            return None

    def _pop(self) -> _Group:
        group = self._groups.popleft()
        group.closed = True
        self._in_work += 1
        return group

    def _is_full(self, group: _Group) -> bool:
        return group.rows >= self.max_rows or group.bytes >= self.max_bytes

    def _is_ripe(self, group: _Group) -> bool:
        is_old = time.monotonic() >= group.began_at + self.linger_s
        return is_old or self._closing or bool(self._flushing) or len(self._groups) > 1 or self._is_full(group)


def _joined(futures: list[Future[WriteToken]]) -> Future[WriteToken]:
    """Done when all are, with the token of all of them or the first error."""
    if len(futures) == 1:
        return futures[0]
    joined: Future[WriteToken] = Future()
    unfinished, lock = len(futures), threading.Lock()

    def one_is_done(_future: Future[WriteToken]) -> None:
        nonlocal unfinished
        with lock:
            unfinished -= 1
            if unfinished:
                return
        error = next((e for f in futures if (e := f.exception()) is not None), None)
        if error is not None:
            joined.set_exception(error)
        else:
            joined.set_result(reduce(WriteToken.merged, (f.result() for f in futures)))

    for future in futures:
        future.add_done_callback(one_is_done)
    return joined
