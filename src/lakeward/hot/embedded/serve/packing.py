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
        batch_bytes = batch.get_total_buffer_size()  # `nbytes` costs fifty times as much
        if held and (held_rows + batch.num_rows > rows or held_bytes + batch_bytes > size):
            yield _joined(held)
            held, held_rows, held_bytes = [], 0, 0
        held.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch_bytes
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
