# SPDX-License-Identifier: Apache-2.0
"""The lake's side of a union read by Spark's own Parquet scan, with deletes and replaced rows taken out by anti-joins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as F

from lakeward.model.bucket import Bucket
from lakeward.model.offsetset import OffsetSet
from lakeward.model.schema import BUCKET, OFFSET, TIMESTAMP
from lakeward.model.table import TableInfo
from lakeward.read.spark.schema import parquet_schema, table_schema
from lakeward.spi.lake import LakeFile

BROADCAST_ROWS = 2_000_000
"""Anti-join sides up to this size are broadcast: 16 to 60 bytes a row stays far below Spark's own broadcast limit."""

_FILE, _ROW, _SEQUENCE = "__file", "__row", "__sequence"


@dataclass(frozen=True)
class FileGroups:
    """Files that no delete and no replaced row touches are scanned without any join."""

    clean: tuple[LakeFile, ...]
    deleted: tuple[LakeFile, ...]
    """With delete files of their own."""

    replaced: tuple[LakeFile, ...]
    """Without delete files, but the tail may replace rows in them."""


def group_files(files: Iterable[LakeFile], replaced: Mapping[Bucket, OffsetSet]) -> FileGroups:
    """Pure. A file whose offset bounds hold no replaced offset of its bucket is clean; unknown bounds count as touched."""
    clean: list[LakeFile] = []
    deleted: list[LakeFile] = []
    touched: list[LakeFile] = []
    for file in files:
        if file.deletes:
            deleted.append(file)
        elif _is_touched(file, replaced):
            touched.append(file)
        else:
            clean.append(file)
    return FileGroups(tuple(clean), tuple(deleted), tuple(touched))


def _is_touched(file: LakeFile, replaced: Mapping[Bucket, OffsetSet]) -> bool:
    if not replaced:
        return False
    if file.bucket is None:
        return True
    offsets = replaced.get(file.bucket)
    if not offsets:
        return False
    return file.offsets is None or len(offsets.below(file.offsets.stop)) > len(offsets.below(file.offsets.start))


def normal_path(path: str) -> str:
    """One spelling for a path: Spark says `file:/a`, Iceberg writes `file:///a` or `/a`."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return unquote(parts.path) if parts.scheme else path
    return path


@dataclass(frozen=True, kw_only=True)
class LakeScan:
    """Builds the DataFrame. `replaced_frame` has the partition keys, `__bucket`, `__offset`; `keys_frame` the primary key."""

    spark: Any
    table: TableInfo
    columns: tuple[str, ...]
    field_ids: Mapping[str, int]
    replaced_frame: Any | None = None
    replaced_rows: int = 0
    keys_frame: Any | None = None

    def frame(self, groups: FileGroups) -> Any | None:
        """None when there is no file at all."""
        parts = []
        if groups.clean:
            parts.append(self._without_keys(self._scan(groups.clean, self._narrow())))
        if groups.replaced:
            parts.append(self._without_replaced(self._scan(groups.replaced, self._wide())))
        if groups.deleted:
            parts.append(self._without_replaced(self._without_deletes(groups.deleted)))
        frames = [self._shape(p) for p in parts]
        whole = None
        for frame in frames:
            whole = frame if whole is None else whole.unionByName(frame)
        return whole

    def _narrow(self) -> tuple[str, ...]:
        key = self.table.descriptor.primary_key if self.keys_frame is not None else ()
        return tuple(dict.fromkeys((*self.columns, *key, BUCKET, OFFSET, TIMESTAMP)))

    def _wide(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._narrow(), *self.table.descriptor.partition_keys)))

    def _scan(self, files: Sequence[LakeFile], names: Sequence[str]) -> Any:
        return self.spark.read.schema(parquet_schema(self.table, names, self.field_ids)).parquet(*[f.path for f in files])

    def _shape(self, frame: Any) -> Any:
        """The columns asked for plus the system columns, in the table's own types."""
        wanted = table_schema(self.table, self.columns, (BUCKET, OFFSET, TIMESTAMP))
        return frame.select(*[F.col(f"`{f.name}`").cast(f.dataType).alias(f.name) for f in wanted.fields])

    def _without_replaced(self, frame: Any) -> Any:
        if self.replaced_frame is not None:
            on = [*self.table.descriptor.partition_keys, BUCKET, OFFSET]
            frame = frame.join(_small(self.replaced_frame, self.replaced_rows), on, "left_anti")
        return self._without_keys(frame)

    def _without_keys(self, frame: Any) -> Any:
        if self.keys_frame is None:
            return frame
        return frame.join(self.keys_frame, list(self.table.descriptor.primary_key), "left_anti")

    def _without_deletes(self, files: Sequence[LakeFile]) -> Any:
        names = tuple(dict.fromkeys((*self._wide(), *_equality_columns(files))))
        frame = self._scan(files, names)
        path = F.regexp_replace(F.col("_metadata.file_path"), "^file:/*", "/")
        frame = frame.select(*[F.col(f"`{n}`") for n in names], path.alias(_FILE), F.col("_metadata.row_index").alias(_ROW))
        frame = self._without_positions(frame, files)
        return self._without_equal(frame, files)

    def _without_positions(self, frame: Any, files: Sequence[LakeFile]) -> Any:
        deletes = {d.path: d for f in files for d in f.deletes if d.content == "positions"}
        if not deletes:
            return frame
        gone = self.spark.read.parquet(*deletes).select(
            F.regexp_replace(F.col("file_path"), "^file:/*", "/").alias(_FILE), F.col("pos").alias(_ROW)
        )
        return frame.join(_small(gone, sum(d.record_count for d in deletes.values())), [_FILE, _ROW], "left_anti")

    def _without_equal(self, frame: Any, files: Sequence[LakeFile]) -> Any:
        deletes = {d.path: d for f in files for d in f.deletes if d.content == "equality"}
        if not deletes:
            return frame
        rows = [(normal_path(f.path), f.sequence) for f in files]
        frame = frame.join(F.broadcast(self.spark.createDataFrame(rows, f"{_FILE} string, {_SEQUENCE} long")), _FILE)
        for delete in deletes.values():
            keys = self.spark.read.schema(parquet_schema(self.table, delete.equality_columns, self.field_ids)).parquet(delete.path)
            keys = keys.select(*[F.col(f"`{c}`").alias(f"__d_{c}") for c in delete.equality_columns])
            same = [frame[f"`{c}`"].eqNullSafe(keys[f"`__d_{c}`"]) for c in delete.equality_columns]
            condition = frame[_SEQUENCE] < delete.sequence
            for equal in same:
                condition = condition & equal
            frame = frame.join(_small(keys, delete.record_count), condition, "left_anti")
        return frame


def _equality_columns(files: Sequence[LakeFile]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c for f in files for d in f.deletes for c in d.equality_columns))


def _small(frame: Any, rows: int) -> Any:
    return F.broadcast(frame) if rows <= BROADCAST_ROWS else frame
