# SPDX-License-Identifier: Apache-2.0
"""Small batches packed into larger ones on their way out: a batch costs Flight and Arrow the same, whether it has ten
rows or thousands.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator

import pyarrow as pa

from lakeward.model import OFFSET

PACKED_ROWS = 8_192
PACKED_BYTES = 4 << 20

KEPT_BYTES = 32 << 20
"""Limit for all cached packs: a table of 1,000 batches of 10 rows and 23 columns takes 2 MB."""

SMALL_BATCHES = 8
"""Packs of fewer stored batches cost little to make again, and are not kept."""


def packed(
    batches: Iterable[pa.RecordBatch], rows: int = PACKED_ROWS, size: int = PACKED_BYTES
) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order. A batch is never cut, so that every boundary that is left was one before."""
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        batch_rows, batch_bytes = batch.num_rows, batch.get_total_buffer_size()  # `nbytes` costs fifty times as much
        if held and (held_rows + batch_rows > rows or held_bytes + batch_bytes > size):
            yield _take(held)
            held_rows = held_bytes = 0
        held.append(batch)
        del batch
        held_rows += batch_rows
        held_bytes += batch_bytes
        if held_rows + batch_rows > rows or held_bytes + batch_bytes > size:
            yield _take(held)  # before the next is read, which is likely as large
            held_rows = held_bytes = 0
    if held:
        yield _take(held)


def _take(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All of them as one; nothing of them is kept here."""
    joined = held[0] if len(held) == 1 else pa.concat_batches(held)
    held.clear()
    return joined


class PackedReads:
    """Reads of small batches, packed. Packs are kept, the least recently used ones leave first: a stored batch never
    changes, so a read that begins where an earlier one began decodes only batches that were written since. Safe to use
    from several threads."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._most, self._bytes = kept_bytes, 0
        self._packs: OrderedDict[Hashable, tuple[pa.RecordBatch, int]] = OrderedDict()
        self._lock = threading.Lock()

    def read(
        self, what: Hashable, start: int, stop: int, read: Callable[[int], Iterable[pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        """`what`: everything that the batches depend on but the offsets. `read`: the stored batches from an offset on,
        up to `stop`; it checks that the range is there when it is called."""
        rest, at = read(start), start
        while (pack := self._find((what, at), stop)) is not None:
            batch, at = pack
            yield batch
        rest = rest if at == start else read(at)
        stored = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal stored
            for batch in rest:
                stored += 1
                yield batch

        before = 0
        for batch in packed(counted()):
            end = int(batch.column(OFFSET)[-1].as_py()) + 1 if batch.num_rows else at
            if stored - before >= SMALL_BATCHES:
                self._keep((what, at), batch, end)
            at, before = end, stored
            yield batch

    def _find(self, key: Hashable, stop: int) -> tuple[pa.RecordBatch, int] | None:
        with self._lock:
            pack = self._packs.get(key)
            if pack is None or pack[1] > stop:
                return None
            self._packs.move_to_end(key)
            return pack

    def _keep(self, key: Hashable, batch: pa.RecordBatch, end: int) -> None:
        with self._lock:
            self._drop(key)
            self._packs[key] = (batch, end)
            self._bytes += batch.get_total_buffer_size()
            while self._bytes > self._most:
                self._drop(next(iter(self._packs)))

    def _drop(self, key: Hashable) -> None:
        batch, _ = self._packs.pop(key, (None, 0))
        self._bytes -= 0 if batch is None else batch.get_total_buffer_size()
