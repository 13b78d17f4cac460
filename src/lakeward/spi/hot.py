# SPDX-License-Identifier: Apache-2.0
"""The plug point for hot stores: what a round, a union read and `verify` need of any of them.

A plugin is an entry point in group `lakeward.hot`: a callable that takes connection options and returns a `HotPlugin`,
which brings both doors a job needs: the store and its coordinator's client (`spi.coordinator`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.model import Bucket, CutEnds, Intent, Schema, SideName, TableInfo, TablePath
from lakeward.spi.coordinator import CoordinatorClient


@dataclass(frozen=True, kw_only=True)
class LogBounds:
    """Range of offsets in a bucket's log, `[start, end)`. `end` counts only rows that survive a crash of the store.
    `bytes_per_row` is an estimate for cutting sub-splits; `end_at_ms` is the time of the newest record."""

    start: int
    end: int
    end_at_ms: int = 0
    bytes_per_row: float = 0.0


@dataclass(frozen=True, kw_only=True)
class KvSnapshot:
    """A point-in-time copy of a bucket's live rows, standing for the log up to `log_offset`."""

    bucket: Bucket
    snapshot_id: str
    log_offset: int
    rows: int | None = None
    has_offsets: bool = True
    """False (Fluss): rows carry no offset of their own."""


NO_ROWS = "no-rows"
"""The id of a snapshot of a bucket that never had a row; no store has it."""


@dataclass(frozen=True, kw_only=True)
class FrozenTable:
    """A table's log bounds, and the table as it was loaded after: no batch below the ends has a newer schema. `cuts`
    are those that rounds must stop at, oldest first, looked up after the bounds."""

    table: TableInfo
    bounds: Mapping[Bucket, LogBounds]
    cuts: tuple[CutEnds, ...] = ()
    has_intent: bool = False
    """The round's intent was recorded in the same call."""


class HotStore(ABC):
    """Reads of a hot store. Safe to use from several threads; rebuilt on executors from `HotPlugin.options`."""

    has_prev_offset: bool
    """Whether changelogs carry `__prev_offset`."""

    def names_replaced(self, table: TableInfo) -> bool:
        """Whether a change finds the row it replaces by its offset. By key otherwise: a clean lake table knows no
        offsets of single rows."""
        return self.has_prev_offset and not table.descriptor.is_clean

    @abstractmethod
    def load_table(self, path: TablePath) -> TableInfo:
        """The table with its newest schema. Raises `TableNotFound`, `ServerUnavailable`."""

    def schemas(self, table: TableInfo) -> Sequence[Schema]:
        """Every schema that the table ever had, oldest first. Raises `InvalidRequest` where the store does not keep
        them."""
        raise InvalidRequest(what=f"older columns of {table.path}", reason="its hot store keeps no older schemas")

    @abstractmethod
    def list_tables(self) -> Sequence[TablePath]:
        """Every table. Raises `ServerUnavailable`."""

    @abstractmethod
    def freeze(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        """Bounds of every bucket there is now, partitions included, after forcing to disk what was acknowledged.

        Called once per plan; may block for an fsync. Safe to repeat; each answer's ends are at or above the last one's.
        """

    def freeze_table(self, path: TablePath) -> FrozenTable:
        """`freeze` of the table of that name, then the table with its newest schema: what a plan begins with. Raises
        `TableNotFound`, `ServerUnavailable`."""
        bounds = self.freeze(self.load_table(path))
        return FrozenTable(table=self.load_table(path), bounds=bounds)

    @abstractmethod
    def read_log(
        self, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Records `[start, stop)` in offset order, one Arrow batch per stored batch (cut at the bounds): `columns`
        (default all of the user's), then `__offset`, `__timestamp`, `__change_type` and, on PK tables here,
        `__prev_offset`.

        Offsets may have gaps. Constant memory. Raises `OffsetOutOfRange`, `SchemaChanged` (a batch newer than `table`),
        `ServerUnavailable`. Safe to repeat."""

    @abstractmethod
    def offset_at(self, table: TableInfo, bucket: Bucket, at_ms: int) -> int:
        """The first offset written at or after that moment; the log's end when there is none."""

    @abstractmethod
    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None:
        """A KV snapshot to read, leased to `holder` until `release_snapshots`; None when the bucket never had a row."""

    def take_snapshots(self, table: TableInfo, buckets: Sequence[Bucket], holder: str) -> dict[Bucket, KvSnapshot]:
        """`take_snapshot` of many buckets, without those that never had a row. Rows that were stored together are in
        all of them or in none, where the store can do that."""
        taken = ((bucket, self.take_snapshot(table, bucket, holder)) for bucket in buckets)
        return {bucket: snapshot for bucket, snapshot in taken if snapshot is not None}

    @abstractmethod
    def read_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the snapshot in any order: `columns`, then `__offset`, `__timestamp` of each row's last change."""

    @abstractmethod
    def release_snapshots(self, table: TableInfo, holder: str) -> None:
        """Gives back every snapshot lease of `holder`. Safe to repeat."""

    @abstractmethod
    def close(self) -> None:
        """Closes connections. Safe to repeat."""


class HotPlugin(ABC):
    """One hot store with its coordinator. `options` rebuild it elsewhere; secrets are not in them: each process has its
    own.
    """

    name: str
    options: Mapping[str, str]
    is_upkept: bool = True
    """The Lakeward server removes orphans. False (Fluss): the job does, with intents stored beside the lake table."""

    @abstractmethod
    def store(self) -> HotStore:
        """The store. Connects on first use."""

    def reach(self) -> None:  # noqa: B027 - a hot store whose calls give up soon has nothing to do here
        """Raises `ServerUnavailable` within seconds if the server does not answer. Called where a person waits, before
        calls that retry for longer."""

    @abstractmethod
    def coordinator(self) -> CoordinatorClient:
        """The coordinator's client. Connects on first use."""

    def begin_round(self, intent: Intent, path: TablePath) -> FrozenTable:
        """`HotStore.freeze_table`, before a plan; the intent is recorded first where that costs no call of its own
        (`has_intent`). Safe to repeat with the same intent. A crash leaves an intent without files: harmless."""
        return self.store().freeze_table(path)

    @abstractmethod
    def lake_options(self, table: TableInfo, side: SideName | None = None) -> tuple[str, Mapping[str, str]]:
        """(format, options) of the lake that this side of the table is in (its first, where none is named), secrets
        left out: each process adds its own."""
