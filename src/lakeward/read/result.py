# SPDX-License-Identifier: Apache-2.0
"""What a read gives back: Arrow batches, and how fresh they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.model.ids import SnapshotId
from lakeward.model.offsets import OffsetMap


@dataclass(frozen=True, kw_only=True)
class ReadBound:
    """How far a read reaches: every row acknowledged before `frozen_at_ms` (in lake mode: that the lake had) is in it."""

    table: str
    mode: str
    snapshot_id: SnapshotId | None
    lake_offsets: OffsetMap
    ends: OffsetMap
    frozen_at_ms: int

    @property
    def tail_rows(self) -> int:
        """Offsets that came from the hot side; on PK tables some of them are changes of the same row."""
        return sum(end - self.lake_offsets.get(bucket, 0) for bucket, end in self.ends.items())

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "mode": self.mode,
            "snapshot": self.snapshot_id,
            "lake_offsets": self.lake_offsets.to_json(),
            "ends": self.ends.to_json(),
            "frozen_at_ms": self.frozen_at_ms,
        }


class ReadResult:
    """One read, to be consumed once: as a table, as batches, or through the Arrow C stream protocol.

    Holds a read lease until it is consumed or closed; use it as a context manager when you may stop early."""

    def __init__(self, schema: pa.Schema, bound: ReadBound, batches: Iterator[pa.RecordBatch], close: Callable[[], None]) -> None:
        self.schema, self.bound = schema, bound
        self._batches: Iterator[pa.RecordBatch] | None = batches
        self._close = close

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        batches, self._batches = self._batches, None
        if batches is None:
            raise InvalidRequest(what=f"read of {self.bound.table}", reason="it was consumed already; read again")
        try:
            yield from batches
        finally:
            self.close()

    def reader(self) -> pa.RecordBatchReader:
        """Streams with constant memory on log tables."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(list(self), schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Gives the read lease back. Safe to repeat."""
        self._close()

    def __enter__(self) -> ReadResult:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
