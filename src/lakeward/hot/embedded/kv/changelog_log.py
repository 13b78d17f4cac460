# SPDX-License-Identifier: Apache-2.0
"""Interface of a bucket's log that KV uses: the changelog is the truth, KV only folds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from lakeward.hot.embedded.log.writers import Appended, WriterSequence


class ChangelogLog(Protocol):
    """A bucket's log of which KV is the only writer."""

    @property
    def start(self) -> int:
        """The lowest offset that can be read, on disk here or in the remote tier."""
        ...

    @property
    def end(self) -> int:
        """The offset of the next record."""
        ...

    @property
    def stopped(self) -> str | None:
        """Why it takes no records."""
        ...

    def stop(self, reason: str | None) -> None:
        """Refuses records until it is called with None."""
        ...

    def find_duplicate(self, writer: WriterSequence | None) -> Appended | None:
        """The first offsets of a put that was here before. Raises `OutOfSequence` on a gap."""
        ...

    def append(
        self,
        rows: pa.RecordBatch,
        change_types: bytes,
        *,
        schema_id: int,
        timestamp_ms: int,
        writer: WriterSequence | None,
    ) -> Appended:
        """Appends one batch (user's columns, then `__prev_offset`), maybe without rows, and does not wait for
        the disk.
        """
        ...

    def wait_synced(self, stop: int) -> None:
        """Returns when a put that ends at `stop` may be acknowledged, as the table's fsync policy says."""
        ...

    def sync(self) -> int:
        """Forces everything appended before the call to disk; returns that end."""
        ...

    def read(self, start: int, stop: int, *, unsynced: bool) -> Iterator[pa.RecordBatch]:
        """Records `[start, stop)` as `spi.hot.HotStore.read_log` gives them; `unsynced`: also what is not on
        disk yet.
        """
        ...
