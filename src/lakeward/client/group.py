# SPDX-License-Identifier: Apache-2.0
"""A member of a consumer group: reads its share of a table's buckets, and goes on where the group was."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from lakeward.changelog.columns import with_change_words
from lakeward.errors import LakewardError, OffsetOutOfRange
from lakeward.model import OFFSET, Bucket, OffsetRange
from lakeward.protocol import routes
from lakeward.protocol.groups import GroupAnswer, GroupBeat

if TYPE_CHECKING:
    from lakeward.client.table import Table

POLL_S, MOST_OFFSETS = 0.2, 50_000
Positions = Callable[[str], int | None]
"""Bucket -> the offset that the program has stored for it with its own results; None: it has none."""


class GroupConsumer:
    """An iterator of record batches of the member's buckets, with the system columns; each batch is of one bucket.

    A batch counts as processed when the next one is asked for, or at `commit()`: every row is seen at least once. For
    exactly once give `positions`, and store each batch's results together with the offset behind it. Use it in a `with`
    block: leaving hands the buckets on at once, a death after the lease."""

    def __init__(
        self,
        table: Table,
        group: str,
        *,
        columns: Sequence[str] | None = None,
        positions: Positions | None = None,
        idle_s: float | None = None,
        member: str | None = None,
    ) -> None:
        self.table, self.group, self.idle_s = table, group, idle_s
        self.columns = None if columns is None else tuple(columns)
        self.member = member or uuid.uuid4().hex
        self._positions = positions
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self.position: tuple[str, int] | None = None
        """Bucket of the batch that was yielded last, and the offset behind it: to be stored for `positions`."""

        self._lease_s, self._beaten_at = 10.0, time.monotonic()
        self._closing = threading.Event()
        self._beat()
        self._thread = threading.Thread(target=self._keep, name=f"group-{group}", daemon=True)
        self._thread.start()

    @property
    def buckets(self) -> Mapping[str, int]:
        """The member's buckets now, with the offset that is read next."""
        with self._lock:
            return dict(self._next)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        quiet_since = time.monotonic()
        while not self._closing.is_set():
            read = False
            bounds = {str(bucket): (bucket, b) for bucket, b in self.table.bounds().items()}
            for name, start in self.buckets.items():
                if name not in bounds:
                    continue
                bucket, logged = bounds[name]
                begin = logged.start if start < 0 else start
                for batch in self._read(bucket, begin, min(logged.end, begin + MOST_OFFSETS)):
                    if not self._begin(name):
                        break
                    read = True
                    self.position = name, batch.column(OFFSET)[-1].as_py() + 1
                    yield batch
                    self._end(*self.position)
            if read:
                quiet_since = time.monotonic()
                continue
            if self.idle_s is not None and time.monotonic() - quiet_since >= self.idle_s:
                return
            self._beat()
            self._closing.wait(POLL_S)

    def commit(self) -> None:
        """Tells the server now. The batch that was yielded last counts as processed once the next is asked for."""
        self._beat()

    def close(self) -> None:
        """Commits, and leaves the group. Safe to repeat."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join(5)
            self._beat(leaving=True)

    def __enter__(self) -> GroupConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, bucket: Bucket, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        if start >= stop:
            return
        info, store = self.table.info, self.table.client.store
        try:
            for batch in store.read_log(info, bucket, start, stop, self.columns):
                yield with_change_words(batch)
        except OffsetOutOfRange:
            from lakeward.read.streamrows import StreamRows

            rows = StreamRows.open(self.table.client.plugin, info.path)
            begin = rows.bounds()[bucket].start
            rows.check_kept({bucket: start}, {bucket: begin})
            for batch in rows.range(bucket, OffsetRange(start, begin), self.columns or info.schema.names):
                if batch.num_rows:
                    yield with_change_words(batch)

    def _begin(self, name: str) -> bool:
        """False: the bucket is another member's by now."""
        with self._lock:
            return name in self._next and time.monotonic() - self._beaten_at < self._lease_s

    def _end(self, name: str, offset: int) -> None:
        with self._lock:
            if name in self._next:
                self._next[name] = self._done[name] = offset

    def _keep(self) -> None:
        while not self._closing.wait(self._lease_s / 3):
            try:
                self._beat()
            except LakewardError:
                continue  # the lease runs out meanwhile, and `_begin` sees it

    def _beat(self, *, leaving: bool = False) -> None:
        began_at = time.monotonic()
        with self._lock:
            holding = tuple(self._next)
            beat = GroupBeat(member=self.member, holding=holding, offsets=dict(self._done), leaving=leaving)
        path = routes.GROUP_MEMBERS.format(table=self.table.info.path, group=quote(self.group, safe=""))
        answer = self.table.client.server.call(GroupAnswer, "POST", path, beat)
        with self._lock:
            self._lease_s, self._beaten_at = answer.lease_ms / 1000, began_at
            for name in [n for n in self._next if n not in answer.buckets]:
                self._next.pop(name)
                self._done.pop(name, None)
            for name, offset in answer.buckets.items():
                if name not in self._next and not leaving:
                    stored = None if self._positions is None else self._positions(name)
                    self._next[name] = offset if stored is None else stored


def join_group(table: Table, group: str, **options: Any) -> GroupConsumer:
    """Joins a consumer group, whose members share the table's buckets; see `GroupConsumer` for its options."""
    return GroupConsumer(table, group, **options)
