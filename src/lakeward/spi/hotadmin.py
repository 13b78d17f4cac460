# SPDX-License-Identifier: Apache-2.0
"""Interface between the server's coordinator and the hot store in the same process: table metadata, backlog, the offset
guard. Only a hot store under Lakeward's coordinator implements it (the embedded one); a Fluss cluster has its own
coordinator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakeward.model import Bucket, CutEnds, OffsetMap, OffsetRange, TableId, TableInfo, TablePath
from lakeward.spi.hot import LogBounds


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Rows that the lake does not have yet. `oldest_at_ms` None: no rows are waiting."""

    rows: int = 0
    bytes: int = 0
    oldest_at_ms: int | None = None

    @property
    def words(self) -> str:
        return "1 row waits" if self.rows == 1 else f"{self.rows:,} rows wait"


class RetentionGuard(ABC):
    """Asked by the hot store before it lets go of anything. Must answer at once, from memory."""

    @abstractmethod
    def lake_offset(self, table_id: TableId, bucket: Bucket) -> int | None:
        """The committed offset; None when the lake is enabled and has nothing, or its state is not known."""

    @abstractmethod
    def held_from(self, table_id: TableId, bucket: Bucket) -> int | None:
        """Returns the lowest offset that a read lease or a round needs; None: the bucket is not held."""

    @abstractmethod
    def lake_enabled(self, table_id: TableId) -> bool:
        """Whether this table's rows must reach the lake before they may go."""


class HotLoad(ABC):
    """A PK table that is filled with rows from before it has a log, and is not there for anybody else meanwhile. One
    thread; what `save` returned from survives the end of the process."""

    note: Mapping[str, Any]
    """The record that the loader wrote when it began."""

    files: int
    """How many of the files that rows come from are done."""

    @property
    @abstractmethod
    def table(self) -> TableInfo: ...

    @property
    @abstractmethod
    def rows(self) -> int: ...

    @abstractmethod
    def put(self, rows: pa.Table) -> None:
        """The next rows, in an order that never changes: after a crash those of files that are not done come again, and
        are passed over as far as they are in. Raises `InvalidTable` for a key that is there twice, `InvalidRows`,
        `LoadLost`, `DiskFull`."""

    @abstractmethod
    def save(self, files: int) -> None:
        """So many files are done. Cheap to call often: what has grown is made durable."""

    @abstractmethod
    def begin_anew(self, note: Mapping[str, Any]) -> None:
        """Forgets all rows that were put so far and starts over."""

    @abstractmethod
    def seal(self, at_least: Mapping[Bucket, int]) -> Mapping[Bucket, int]:
        """All rows are put and on disk: the offsets at which the logs begin, above the rows' and at least these. Safe
        to repeat."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of files; what was saved stays. Safe to repeat."""


class HotAdmin(ABC):
    """All calls are thread-safe; changes are durable when they return."""

    @abstractmethod
    def create_table(self, table: TableInfo) -> None:
        """Raises `TableAlreadyExists`. A crash leaves the table made or not made."""

    def check_table(self, table: TableInfo) -> None:
        """Before anything is made anywhere. Raises what `create_table` would for a table that the store cannot hold."""
        return

    def begin_load(self, table: TableInfo, note: Mapping[str, Any], of: int) -> HotLoad:
        """Begins to fill a PK table of that name, of about so many rows; until it is published `load_table` raises
        `TableLoading`. Durable. Raises `TableAlreadyExists`, `TableLoading`."""
        raise NotImplementedError(f"{type(self).__name__} loads nothing")

    def loads(self) -> Sequence[HotLoad]:
        """Those that are under way, also from before this process."""
        return ()

    def publish_load(self, load: HotLoad, ends: Mapping[Bucket, int]) -> None:
        """A sealed load becomes the table of its name. A crash leaves it published or not."""
        raise NotImplementedError(f"{type(self).__name__} loads nothing")

    def drop_load(self, load: HotLoad) -> None:
        """Nothing of it is left, now or after the next start."""
        raise NotImplementedError(f"{type(self).__name__} loads nothing")

    @abstractmethod
    def alter_table(self, table: TableInfo) -> None:
        """Replaces the descriptor (schema grown, properties changed). Raises `TableNotFound`, `InvalidAlter`."""

    @abstractmethod
    def drop_table(self, path: TablePath) -> None:
        """Removes the hot side: its logs, KV, remote segments. Raises `TableNotFound`."""

    @abstractmethod
    def load_table(self, path: TablePath) -> TableInfo:
        """Raises `TableNotFound`, `TableLoading`."""

    @abstractmethod
    def load_tables(self) -> Sequence[TableInfo]: ...

    @abstractmethod
    def bounds(self, table: TableInfo, *, sync: bool = False) -> Mapping[Bucket, LogBounds]:
        """Log bounds of every bucket, ends fsynced; `sync` forces an fsync first."""

    @abstractmethod
    def freeze_cut(self, name: str, tables: Sequence[TableInfo]) -> Mapping[TableId, CutEnds]:
        """Freezes the log ends of these tables at one moment; they are on disk when this returns. From then on plans of
        rounds include them, until `forget_cut` or the end of the process. May block for an fsync. Raises
        `TableNotFound`, `BucketStopped`."""

    @abstractmethod
    def add_cut(self, name: str, ends: Mapping[TableId, CutEnds]) -> None:
        """At start, oldest first: a cut that was open when the process ended."""

    @abstractmethod
    def forget_cut(self, name: str) -> None:
        """Rounds need not stop at it any more. Safe to repeat."""

    @abstractmethod
    def waiting(self, table: TableInfo, committed: OffsetMap) -> Waiting:
        """Backlog against the lake. Cheap: called for every table on every scheduling tick."""

    @abstractmethod
    def guard_offsets(self, table: TableInfo, committed: OffsetMap) -> Mapping[Bucket, OffsetRange]:
        """The lake's offsets are above the log's end (a restored folder): a log table goes on there and the gaps are
        returned; a PK table is stopped for a resync. Nothing to do: an empty map. Safe to repeat."""

    @abstractmethod
    def pause_writes(self, table: TableInfo, reason: str | None) -> None:
        """Refuses writes with `WritesPaused` and this reason; None takes them again."""

    @abstractmethod
    def set_retention(self, guard: RetentionGuard) -> None:
        """Called once at start, before any retention runs."""

    def stopped_buckets(self, table: TableInfo) -> Mapping[Bucket, str]:
        """Buckets that take no writes, with the reason: damage, or a PK table that `guard_offsets` stopped."""
        return {}

    def gaps(self, table: TableInfo) -> Sequence[tuple[Bucket, OffsetRange]]:
        """Offsets that `guard_offsets` skipped: no row has them."""
        return ()

    def behind(self, table: TableInfo) -> Mapping[Bucket, OffsetRange]:
        """Buckets of a PK table that `guard_offsets` found behind the lake, with the offsets that the lake alone has;
        none once a resync has landed."""
        return {}

    def load_newer(self, table: TableInfo, bucket: Bucket, rows: Iterable[pa.RecordBatch], as_of_ms: int) -> int:
        """Makes the rows of a bucket that is `behind` those of the lake, which are given whole, with `__offset`. Rows
        that were put after `as_of_ms` stay as they are. What changes goes through the log like any put, and the bucket
        goes on refusing others. Safe to repeat; a crash leaves part of it. Returns the changes."""
        raise NotImplementedError(f"{type(self).__name__} loads nothing")

    def put_again(self, table: TableInfo, bucket: Bucket, rows: Iterable[pa.RecordBatch]) -> None:
        """The other way round: the lake goes back to the rows of a bucket that is `behind`. Those that differ from the
        lake's, whose keys and offsets are given, get offsets above the lake's: it may take the higher one of two rows
        with a key. Safe to repeat."""
        raise NotImplementedError(f"{type(self).__name__} loads nothing")

    def left_out(self) -> Sequence[str]:
        """A line for each stored table that makes no sense and is not served."""
        return ()

    def lift_stops(self, table: TableInfo) -> None:
        """Called when a resync has landed: buckets that `guard_offsets` stopped take writes again. Safe to repeat."""
        return
