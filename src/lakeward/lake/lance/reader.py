# SPDX-License-Identifier: Apache-2.0
"""Reads one Lance table: what a commit stands on, snapshots, fragments, rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest
from lakeward.lake.filtercolumns import filter_columns
from lakeward.lake.lance.columns import parse_columns
from lakeward.lake.lance.datafile import read_offsets
from lakeward.lake.lance.deletions import load_deletions
from lakeward.lake.lance.described import describe_fragment
from lakeward.lake.lance.failures import lake_errors
from lakeward.lake.lance.reconcile import LanceGround, describe, find_own, load_base, parse_offsets
from lakeward.lake.lance.rows import LanceRows
from lakeward.lake.lance.table import LanceTable
from lakeward.model.arrow import to_arrow_field
from lakeward.model.bucket import Bucket
from lakeward.model.ids import SnapshotId
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.schema import OFFSET
from lakeward.model.systemcolumns import LAKE_FIELDS, LAKE_NAMES
from lakeward.model.table import TableInfo
from lakeward.spi.lake import LakeFile, LakeReader, LakeSnapshot, LakeTotals


class LanceLakeReader(LakeReader):
    def __init__(self, table: LanceTable, info: TableInfo) -> None:
        self._table, self._info = table, info

    def load_base(self) -> LakeBase:
        return load_base(self._table, self._info.table_id, LanceGround.load(self._table))

    def load_base_as_is(self) -> LakeBase:
        return load_base(self._table, self._info.table_id, LanceGround.load(self._table), as_is=True)

    def snapshots(self) -> Sequence[LakeSnapshot]:
        ground = LanceGround.load(self._table)
        return [describe(v, self._table.name) for v in ground.snapshots(self._table)]

    def load_snapshot(self, snapshot_id: SnapshotId | None = None) -> LakeSnapshot | None:
        ground = LanceGround.load(self._table)
        if snapshot_id is None and ground.head is None:
            return None
        number = self._number(snapshot_id or ground.head_id or SnapshotId(""), ground)
        own = find_own(self._table, ground.versions, number)
        offsets = None if own is None else parse_offsets(own, self._table.name)
        return replace(describe(self._table.version(number), self._table.name), offsets=offsets)

    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        rows, root, keys = self._rows(snapshot_id), self._table.root, self._info.descriptor.partition_keys
        every = [(f, rows.facts(f)) for f in rows.fragments]
        return [
            describe_fragment(f, facts, root, rows.path(f), keys)
            for f, facts in every
            if bucket is None or facts.bucket == bucket
        ]

    def scan(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        return (batch for _, batch in self.scan_buckets(snapshot_id, columns=columns, filter=filter, buckets=buckets))

    def scan_buckets(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket | None] | None = None,
        without: Mapping[Bucket, OffsetSet] | None = None,
    ) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        rows, schema = self._rows(snapshot_id), self._schema()
        names = list(columns) if columns is not None else [n for n in schema.names if n not in LAKE_NAMES]
        if missing := [n for n in names if n not in schema.names]:
            raise InvalidRequest(what=f"columns {', '.join(missing)}", reason="the lake table has none of that name")
        asked = filter_columns(filter, {f.name: f.type for f in schema})
        wanted = None if buckets is None else set(buckets)
        by_bucket: dict[Bucket | None, list[Any]] = {}
        for fragment in rows.fragments:
            by_bucket.setdefault(rows.facts(fragment).bucket, []).append(fragment)
        for bucket, fragments in by_bucket.items():
            if wanted is not None and bucket not in wanted:
                continue
            gone = None if bucket is None else (without or {}).get(bucket)
            read = dict.fromkeys((*names, *asked, *([OFFSET] if gone else [])))
            for live in rows.scan(fragments, pa.schema([schema.field(n) for n in read])):
                kept = live if filter is None else live.filter(filter)
                if gone:
                    kept = kept.filter(pa.array(~gone.mask(kept.column(OFFSET).to_numpy())))
                for batch in kept.select(names).combine_chunks().to_batches():
                    yield bucket, batch

    def deleted_rows(self, file: LakeFile) -> Offsets:
        return self._deleted(file).values

    def deleted_offsets(self, file: LakeFile) -> OffsetSet | None:
        positions = self._deleted(file)
        if not positions:
            return OffsetSet()
        with lake_errors(self._table.name, "read a file of"):
            return OffsetSet(read_offsets(file.path, self._table.storage_options)[positions.values])

    def totals(self) -> LakeTotals:
        ground = LanceGround.load(self._table)
        fragments = LanceRows(self._table, ground.dataset, ()).fragments
        return LakeTotals(
            data_files=len(fragments),
            delete_files=sum(f.deletion_file is not None for f in fragments),
            rows=sum(f.num_rows for f in fragments),
            bytes=sum(file.file_size_bytes or 0 for f in fragments for file in f.files),
            snapshots=len(ground.snapshots(self._table)),
        )

    def _number(self, snapshot_id: SnapshotId, ground: LanceGround) -> int:
        """Raises `SnapshotGone`."""
        if not snapshot_id.isdigit() or int(snapshot_id) not in set(ground.versions) - ground.expired:
            raise self._table.gone(snapshot_id)
        return int(snapshot_id)

    def _rows(self, snapshot_id: SnapshotId) -> LanceRows:
        number = self._number(snapshot_id, LanceGround.load(self._table))
        return LanceRows(self._table, self._table.open(number), self._info.descriptor.partition_keys)

    def _schema(self) -> pa.Schema:
        """As rows leave here: today's columns, as their types say."""
        columns = parse_columns(self._table.open(self._table.newest()).schema)
        return pa.schema([*map(to_arrow_field, columns), *LAKE_FIELDS])

    def _deleted(self, file: LakeFile) -> OffsetSet:
        if not file.deletes:
            return OffsetSet()
        with lake_errors(self._table.name, "read deletions of"):
            return load_deletions(self._table.files, file.deletes[0].path, self._table.name)
