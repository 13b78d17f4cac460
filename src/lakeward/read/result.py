# SPDX-License-Identifier: Apache-2.0
"""Result of a read: Arrow batches, and how fresh they are."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidRequest, ServerUnavailable, SnapshotGone
from lakeward.model import OffsetMap, SnapshotId
from lakeward.read.lease import HeldLease

_ATTEMPTS = 2
"""Attempts at a read whose snapshot expired or whose server went away."""


@dataclass(frozen=True, kw_only=True)
class ReadBound:
    """How far a read reaches: every row acknowledged before `frozen_at_ms` is in it (in lake mode: every row that the
    snapshot has, which was committed at `lake_at_ms`). `tail_rows` counts offsets of the hot side, filtered out or not.
    """

    table: str
    mode: str
    snapshot_id: SnapshotId | None
    lake_offsets: OffsetMap
    ends: OffsetMap
    frozen_at_ms: int
    lake_at_ms: int | None = None
    tail_rows: int = 0

    @property
    def as_of_ms(self) -> int:
        """The moment for which the result is complete."""
        return self.frozen_at_ms if self.mode != "lake" or self.lake_at_ms is None else self.lake_at_ms

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "mode": self.mode,
            "snapshot": self.snapshot_id,
            "lake_offsets": self.lake_offsets.to_json(),
            "ends": self.ends.to_json(),
            "frozen_at_ms": self.frozen_at_ms,
            "lake_at_ms": self.lake_at_ms,
            "as_of_ms": self.as_of_ms,
            "tail_rows": self.tail_rows,
        }


def describe_freshness(bound: ReadBound) -> str:
    """One line for people: how fresh a result is."""
    source = (
        f"lake snapshot {bound.snapshot_id} of {_moment(bound.lake_at_ms)}" if bound.snapshot_id else "no lake snapshot"
    )
    if bound.mode == "lake":
        return f"{bound.table}: lake read, {source}; newer rows are not in it"
    tail = f"{bound.tail_rows:,} offset{'' if bound.tail_rows == 1 else 's'} from the hot side"
    return f"{bound.table}: {bound.mode} read, {source}, {tail}, complete up to {_moment(bound.frozen_at_ms)}"


def _moment(at_ms: int | None) -> str:
    return "?" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


class ReadResult:
    """One read, to be consumed once: as a table, as batches, or through the Arrow C stream protocol.

    Holds a read lease until it is consumed or closed; use it as a context manager when you may stop early. One that is
    forgotten stops renewing its lease, which then ends by itself."""

    def __init__(
        self,
        schema: pa.Schema,
        bound: ReadBound,
        batches: Iterator[pa.RecordBatch],
        lease: HeldLease,
        read_again: Callable[[], ReadResult] | None = None,
    ) -> None:
        """`read_again` plans the same read once more, for one that fails before the caller has seen anything of it."""
        self.schema, self._read_again, self._is_seen = schema, read_again, False
        self._take(bound, batches, lease)

    def _take(self, bound: ReadBound, batches: Iterator[pa.RecordBatch] | None, lease: HeldLease) -> None:
        self._bound, self._batches, self._lease = bound, batches, lease
        weakref.finalize(self, lease.detach)

    @property
    def bound(self) -> ReadBound:
        """How far the read reaches. Whoever has asked for it gets these rows or an error."""
        self._is_seen = True
        return self._bound

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    for batch in self._consume():
                        self._is_seen = True
                        yield batch
                    return
                except (SnapshotGone, ServerUnavailable):
                    if attempt + 1 == _ATTEMPTS or not self._renew():
                        raise
        finally:
            self.close()

    def _consume(self) -> Iterator[pa.RecordBatch]:
        batches, self._batches = self._batches, None
        if batches is None:
            raise InvalidRequest(what=f"read of {self._bound.table}", reason="it was consumed already; read again")
        return batches

    def _renew(self) -> bool:
        """Plans the read again, in place of one that failed; false where that would show."""
        if self._is_seen or self._read_again is None:
            return False
        self._lease.close()
        other = self._read_again()
        self._take(other._bound, other._batches, other._lease)
        return bool(other.schema == self.schema)

    def reader(self) -> pa.RecordBatchReader:
        """Streams with constant memory on log tables."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """All rows in memory."""
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    return pa.Table.from_batches(list(self._consume()), schema=self.schema)
                except (SnapshotGone, ServerUnavailable):
                    if attempt + 1 == _ATTEMPTS or not self._renew():
                        raise
        finally:
            self.close()
        raise AssertionError("the loop returns or raises")

    def to_pandas(self) -> Any:
        """A pandas data frame."""
        return self.to_table().to_pandas()

    def to_polars(self) -> Any:
        """A polars data frame; pip install polars."""
        import polars

        return polars.from_arrow(self.to_table())

    def to_duckdb(self, connection: Any = None) -> Any:
        """A DuckDB relation over the rows, of `connection` or DuckDB's default one; pip install duckdb."""
        import duckdb

        return duckdb.from_arrow(self.to_table(), connection=connection or duckdb.default_connection())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Gives the read lease back. Safe to repeat."""
        self._lease.close()

    def __enter__(self) -> ReadResult:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
