# SPDX-License-Identifier: Apache-2.0
"""One bucket's share of a union read as versioned bytes: planned on a driver, read in any other process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model import LAKE_NAMES, Bucket, OffsetRange, SnapshotId, TableInfo
from lakeward.protocol.codec import Packed
from lakeward.read.moment import ChangesAsLog
from lakeward.read.opened import OpenRead
from lakeward.read.streamrows import StreamRows, open_side
from lakeward.read.unionrows import fold_tails, hot_rows, lake_rows
from lakeward.spi import PROCESS_PLUGINS, HotPlugin, HotStore, KvSnapshot, Plugin, PluginCache


@dataclass(frozen=True, kw_only=True)
class ReadPiece(Packed):
    """Older rows of `bucket` (from the lake's `snapshot_id`, or from `kv`) less what the tail replaced, then the tail.
    Any of them may be absent. `bucket` None: lake files that do not say their bucket; `mixed` then has every bucket's
    tail."""

    packed_as: ClassVar = ("read-piece", 4)

    table: TableInfo
    bucket: Bucket | None
    snapshot_id: SnapshotId | None
    tail: OffsetRange | None
    hot_name: str
    hot_options: Mapping[str, str]
    lake_name: str | None = None
    lake_options: Mapping[str, str] = field(default_factory=dict)
    kv: KvSnapshot | None = None
    mixed: Mapping[Bucket, OffsetRange] = field(default_factory=dict)
    is_moment: bool = False
    """Between two lake snapshots: the tail is the changelog's where the log no longer has it, at `changes_at`."""

    changes_at: SnapshotId | None = None


def plan_pieces(plugin: HotPlugin, opened: OpenRead, *, lake: bool = True) -> list[ReadPiece]:
    """One piece per bucket that either side knows; `lake` False: of the hot side alone."""
    union, changes = opened.union, opened.hot.rows if isinstance(opened.hot, ChangesAsLog) else None
    in_lake = opened.lake_buckets() if lake else []
    buckets = sorted({*(b for b in in_lake if b is not None), *union.tails, *union.kv})
    everywhere: list[Bucket | None] = [*buckets, *([None] if None in in_lake else [])]
    return [
        ReadPiece(
            table=opened.table,
            bucket=bucket,
            snapshot_id=union.snapshot_id if bucket in in_lake else None,
            tail=None if bucket is None else union.tails.get(bucket),
            hot_name=plugin.name,
            hot_options=plugin.options,
            lake_name=opened.plan.lake_format,
            lake_options=opened.plan.lake_options,
            kv=None if bucket is None else union.kv.get(bucket),
            mixed=union.tails if bucket is None and opened.table.is_pk else {},
            is_moment=changes is not None,
            changes_at=None if changes is None else changes.snapshot_id,
        )
        for bucket in everywhere
    ]


def read_piece(
    piece: ReadPiece,
    columns: Sequence[str],
    filter: pc.Expression | None = None,
    filter_columns: Sequence[str] = (),
    plugins: PluginCache = PROCESS_PLUGINS,
) -> Iterator[pa.RecordBatch]:
    """Rows with `columns` (and the filter's), then `__bucket`, `__offset`, `__timestamp`. The hot side is not filtered
    here.

    Connections are kept per process; a crash leaves nothing behind. Raises what the lake and the hot store raise."""
    table, bucket = piece.table, piece.bucket
    hot = _open_hot(piece, plugins)
    read_names = [n for n in table.schema.names if n in {*columns, *filter_columns}]
    tails = {} if bucket is None or piece.tail is None else {bucket: piece.tail}
    folds = fold_tails(hot, table, piece.mixed if bucket is None else tails)
    if piece.snapshot_id is not None and piece.lake_name is not None:
        lake = plugins.lake(Plugin(name=piece.lake_name, options=piece.lake_options))
        reader = lake.open_reader(table).pinned()
        yield from lake_rows(reader, table, piece.snapshot_id, [bucket], folds, [*read_names, *LAKE_NAMES], filter)
    kv = {} if bucket is None or piece.kv is None else {bucket: piece.kv}
    yield from hot_rows(hot, table, kv, tails, folds, read_names)


def _open_hot(piece: ReadPiece, plugins: PluginCache) -> HotStore:
    plugin = plugins.hot(Plugin(name=piece.hot_name, options=piece.hot_options))
    if not piece.is_moment:
        return plugin.store()
    rows = StreamRows.open(plugin, piece.table.path, partial(open_side, plugin, plugins=plugins))
    return ChangesAsLog(replace(rows, snapshot_id=piece.changes_at))
