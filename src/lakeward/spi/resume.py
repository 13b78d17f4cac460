# SPDX-License-Identifier: Apache-2.0
"""A log read through a server that may go away: it goes on at the offset where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa

from lakeward.errors import Unavailable
from lakeward.model import OFFSET


class Patience(Protocol):
    """How long a reader waits for a server to come back."""

    def progress(self) -> None:
        """Call after a batch arrived and was used: the waiting time starts again."""

    def pause(self, error: Unavailable) -> None:
        """Waits before the next attempt; raises `error` when it has waited for long enough."""


def read_on(
    read: Callable[[int], Iterator[pa.RecordBatch]],
    start: int,
    patience: Patience,
    while_away: type[Unavailable] = Unavailable,
) -> Iterator[pa.RecordBatch]:
    """The batches of `read(offset)`, each once, over as many calls as it takes. Raises what `patience` raises."""
    while True:
        try:
            for batch in read(start):
                if batch.num_rows:
                    start = next_offset(batch)
                yield batch
                # after the batch was used: a slow consumer does not use up the time for trying again
                patience.progress()
            return
        except while_away as error:
            patience.pause(error)


def next_offset(batch: pa.RecordBatch) -> int:
    """The offset after the batch's last record."""
    return int(batch.column(OFFSET)[batch.num_rows - 1].as_py()) + 1
