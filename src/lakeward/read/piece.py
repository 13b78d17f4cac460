# SPDX-License-Identifier: Apache-2.0
"""One bucket's share of a union read as versioned bytes: planned on a driver, read in any other process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.bucket import Bucket
from lakeward.model.ids import SnapshotId
from lakeward.model.offsets import OffsetRange
from lakeward.model.schema import BUCKET, OFFSET, TIMESTAMP
from lakeward.model.table import TableInfo
from lakeward.model.versioned import pack, unpack
from lakeward.read.arrow import OpenRead, append_bucket, without_replaced
from lakeward.read.tail import fold_tail, read_live
from lakeward.spi.hot import HotPlugin, HotStore
from lakeward.spi.lake import LakeReader
from lakeward.spi.registry import load_hot, load_lake

_KIND, _VERSION = "read-piece", 1


@dataclass(frozen=True, kw_only=True)
class ReadPiece:
    """Lake rows of `bucket` in `snapshot_id` less what the tail replaced, then the tail. Either side may be absent."""

    table: TableInfo
    bucket: Bucket
    snapshot_id: SnapshotId | None
    tail: OffsetRange | None
    hot_name: str
    hot_options: Mapping[str, str]
    lake_name: str | None = None
    lake_options: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        body = {
            "table": self.table.to_json(),
            "bucket": str(self.bucket),
            "snapshot_id": self.snapshot_id,
            "tail": None if self.tail is None else [self.tail.start, self.tail.stop],
            "hot": [self.hot_name, dict(self.hot_options)],
            "lake": [self.lake_name, dict(self.lake_options)],
        }
        return pack(_KIND, _VERSION, body)

    @classmethod
    def from_bytes(cls, data: bytes) -> ReadPiece:
        _, body, _ = unpack(_KIND, _VERSION, data)
        tail = body["tail"]
        return cls(
            table=TableInfo.from_json(body["table"]),
            bucket=Bucket.parse(body["bucket"]),
            snapshot_id=body["snapshot_id"],
            tail=None if tail is None else OffsetRange(*tail),
            hot_name=body["hot"][0],
            hot_options=body["hot"][1],
            lake_name=body["lake"][0],
            lake_options=body["lake"][1],
        )


def plan_pieces(plugin: HotPlugin, opened: OpenRead) -> list[ReadPiece]:
    """One piece per bucket that either side knows."""
    snapshot = opened.union.snapshot_id
    in_lake = set() if opened.lake is None or snapshot is None else {f.bucket for f in opened.lake.files(snapshot) if f.bucket is not None}
    return [
        ReadPiece(
            table=opened.table,
            bucket=bucket,
            snapshot_id=snapshot if bucket in in_lake else None,
            tail=opened.union.tails.get(bucket),
            hot_name=plugin.name,
            hot_options=plugin.options,
            lake_name=opened.plan.lake_format,
            lake_options=opened.plan.lake_options,
        )
        for bucket in sorted(in_lake | set(opened.union.tails))
    ]


def read_piece(
    piece: ReadPiece, columns: Sequence[str], filter: pc.Expression | None = None, filter_columns: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Rows with `columns` (and the filter's), then `__bucket`, `__offset`, `__timestamp`. The tail is not filtered here.

    Connections are kept per process; a crash leaves nothing behind."""
    hot = _hot(piece.hot_name, tuple(sorted(piece.hot_options.items())))
    wanted = [n for n in piece.table.schema.names if n in {*columns, *filter_columns}]
    folded = fold_tail(hot, piece.table, piece.bucket, piece.tail) if piece.table.is_pk and piece.tail is not None else None
    if piece.snapshot_id is not None and piece.lake_name is not None:
        key = piece.table.descriptor.primary_key
        extra = [k for k in key if folded is not None and folded.keys is not None and k not in wanted]
        reader = _lake(piece.lake_name, tuple(sorted(piece.lake_options.items())), piece)
        scanned = [*wanted, *extra, BUCKET, OFFSET, TIMESTAMP]
        for batch in reader.scan(piece.snapshot_id, columns=scanned, filter=filter, buckets=[piece.bucket]):
            yield without_replaced(batch, folded, key) if folded is not None else batch
    if piece.tail is not None:
        rows = (
            read_live(hot, piece.table, folded, wanted)
            if folded is not None
            else hot.read_log(piece.table, piece.bucket, piece.tail.start, piece.tail.stop, wanted)
        )
        yield from (append_bucket(batch, piece.bucket) for batch in rows)


@lru_cache(maxsize=8)
def _hot(name: str, options: tuple[tuple[str, str], ...]) -> HotStore:
    return load_hot(name, dict(options)).store()


def _lake(name: str, options: tuple[tuple[str, str], ...], piece: ReadPiece) -> LakeReader:
    return load_lake(name, dict(options)).open_reader(piece.table)
