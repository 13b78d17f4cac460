# SPDX-License-Identifier: Apache-2.0
"""Small batches packed into larger ones on their way out: a batch costs Flight and Arrow the same, whether it has ten
rows or thousands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

PACKED_ROWS = 8_192
PACKED_BYTES = 4 << 20


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
