# SPDX-License-Identifier: Apache-2.0
"""One bucket's share of a union read as versioned bytes: planned on a driver, read in any other process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.bucket import Bucket
from lakeward.model.ids import SnapshotId
from lakeward.model.offsets import OffsetRange
from lakeward.model.systemcolumns import LAKE_NAMES
from lakeward.model.table import TableInfo
from lakeward.model.versioned import pack, unpack
from lakeward.protocol.codec import decode, encode
from lakeward.read.arrow import OpenRead, append_bucket
from lakeward.read.tail import TailFold, fold_tail, read_live, replacing, without_replaced, without_replaced_mixed
from lakeward.spi.hot import HotPlugin, HotStore, KvSnapshot
from lakeward.spi.plugins import PROCESS_PLUGINS, Plugin

_KIND, _VERSION = "read-piece", 2


@dataclass(frozen=True, kw_only=True)
class ReadPiece:
    """Older rows of `bucket` (from the lake's `snapshot_id`, or from `kv`) less what the tail replaced, then the tail.
    Any of them may be absent. `bucket` None: lake files that do not say their bucket; `mixed` then has every bucket's
    tail."""

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

    def to_bytes(self) -> bytes:
        body = {
            "table": self.table.to_json(),
            "bucket": None if self.bucket is None else str(self.bucket),
            "snapshot_id": self.snapshot_id,
            "tail": None if self.tail is None else [self.tail.start, self.tail.stop],
            "hot": [self.hot_name, dict(self.hot_options)],
            "lake": [self.lake_name, dict(self.lake_options)],
            "kv": None if self.kv is None else encode(self.kv),
            "mixed": {str(b): [r.start, r.stop] for b, r in self.mixed.items()},
        }
        return pack(_KIND, _VERSION, body)

    @classmethod
    def from_bytes(cls, data: bytes) -> ReadPiece:
        _, body, _ = unpack(_KIND, _VERSION, data)
        tail, kv, bucket = body["tail"], body["kv"], body["bucket"]
        return cls(
            table=TableInfo.from_json(body["table"]),
            bucket=None if bucket is None else Bucket.parse(bucket),
            snapshot_id=body["snapshot_id"],
            tail=None if tail is None else OffsetRange(*tail),
            hot_name=body["hot"][0],
            hot_options=body["hot"][1],
            lake_name=body["lake"][0],
            lake_options=body["lake"][1],
            kv=None if kv is None else decode(KvSnapshot, kv),
            mixed={Bucket.parse(b): OffsetRange(*r) for b, r in body["mixed"].items()},
        )


def plan_pieces(plugin: HotPlugin, opened: OpenRead, *, lake: bool = True) -> list[ReadPiece]:
    """One piece per bucket that either side knows; `lake` False: of the hot side alone."""
    union = opened.union
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
        )
        for bucket in everywhere
    ]


def read_piece(
    piece: ReadPiece, columns: Sequence[str], filter: pc.Expression | None = None, filter_columns: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Rows with `columns` (and the filter's), then `__bucket`, `__offset`, `__timestamp`. The hot side is not filtered
    here.

    Connections are kept per process; a crash leaves nothing behind. Raises what the lake and the hot store raise."""
    hot = PROCESS_PLUGINS.hot(Plugin(name=piece.hot_name, options=piece.hot_options)).store()
    wanted = [n for n in piece.table.schema.names if n in {*columns, *filter_columns}]
    tails = piece.mixed if piece.bucket is None else {} if piece.tail is None else {piece.bucket: piece.tail}
    folds = {b: fold_tail(hot, piece.table, b, r) for b, r in tails.items()} if piece.table.is_pk else {}
    if piece.snapshot_id is not None and piece.lake_name is not None:
        yield from _lake_rows(piece, wanted, filter, replacing(folds))
    if piece.bucket is not None:
        yield from _hot_rows(hot, piece, piece.bucket, wanted, folds.get(piece.bucket))


def _lake_rows(
    piece: ReadPiece, wanted: Sequence[str], filter: pc.Expression | None, folds: Mapping[Bucket, TailFold]
) -> Iterator[pa.RecordBatch]:
    assert piece.snapshot_id is not None
    assert piece.lake_name is not None
    descriptor = piece.table.descriptor
    keys = descriptor.primary_key if any(f.keys is not None for f in folds.values()) else ()
    partition = descriptor.partition_keys if piece.bucket is None and folds else ()
    reader = (
        PROCESS_PLUGINS.lake(Plugin(name=piece.lake_name, options=piece.lake_options)).open_reader(piece.table).pinned()
    )
    scanned = list(dict.fromkeys((*wanted, *keys, *partition, *LAKE_NAMES)))
    for _, batch in reader.scan_buckets(piece.snapshot_id, columns=scanned, filter=filter, buckets=[piece.bucket]):
        if piece.bucket is None:
            yield without_replaced_mixed(batch, folds.values(), piece.table)
        else:
            yield (
                without_replaced(batch, folds[piece.bucket], descriptor.primary_key) if piece.bucket in folds else batch
            )


def _hot_rows(
    hot: HotStore, piece: ReadPiece, bucket: Bucket, wanted: Sequence[str], folded: TailFold | None
) -> Iterator[pa.RecordBatch]:
    table, key = piece.table, piece.table.descriptor.primary_key
    if piece.kv is not None:
        extra = [k for k in key if folded is not None and k not in wanted]
        for batch in hot.read_snapshot(table, piece.kv, [*wanted, *extra]):
            rows = append_bucket(batch, bucket)
            yield rows if folded is None else without_replaced(rows, folded, key)
    if piece.tail is not None:
        start, stop = piece.tail.start, piece.tail.stop
        log = (
            hot.read_log(table, bucket, start, stop, wanted)
            if folded is None
            else read_live(hot, table, folded, wanted)
        )
        yield from (append_bucket(batch, bucket) for batch in log)
