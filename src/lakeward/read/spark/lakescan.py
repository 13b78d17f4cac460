# SPDX-License-Identifier: Apache-2.0
"""The lake's side of a union read by Spark's own Parquet scan, with deletes and replaced rows taken out by anti-joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from lakeward.errors import LakeTampered
from lakeward.model.schema import BUCKET, OFFSET
from lakeward.model.table import TableInfo
from lakeward.read.request import SYSTEM_NAMES
from lakeward.read.spark.lakefiles import FileGroups
from lakeward.read.spark.schema import parquet_schema, table_schema
from lakeward.spi.lake import LakeDelete, LakeFile

BROADCAST_ROWS = 2_000_000
"""Anti-join sides up to this size are broadcast: 16 to 60 bytes a row stays far below Spark's own broadcast limit."""

DEAD = "__dead"
"""`__offset` and `__bucket` as one long: Spark probes a long far faster than a pair."""

_FILE, _ROW, _SEQUENCE = "__file", "__row", "__sequence"

_PATTERN = frozenset("{}[]*?\\")

_READ_OPTIONS = {"__globPaths__": "false", "ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Names are taken as they are, and a session that skips lost files elsewhere must not lose rows here."""


def spellings(path: str) -> set[str]:
    """The ways in which delete files may write a data file's path: `/a`, `file:/a` and `file:///a` are one."""
    local = path.removeprefix("file://").removeprefix("file:")
    return {local, f"file:{local}", f"file://{local}"} if local.startswith("/") else {path}


def spark_path(path: str) -> str:
    """Hadoop knows S3 by one scheme alone."""
    scheme, sep, rest = path.partition("://")
    return f"s3a://{rest}" if sep and scheme in ("s3", "s3n") else path


def dead_key(table: TableInfo, offset: Any, bucket: Any) -> Any:
    """The key of a row of an unpartitioned table, for columns of Spark and arrays alike."""
    return offset * table.descriptor.bucket_count + bucket


@dataclass(frozen=True, kw_only=True)
class LakeScan:
    """Builds the DataFrame. `dead_frame` has `__dead`, or with partitions their keys, `__bucket`, `__offset`; `keys_frame` the
    primary key."""

    spark: Any
    table: TableInfo
    snapshot: str
    columns: tuple[str, ...]
    field_ids: Mapping[str, int]
    dead_frame: Any | None = None
    dead_rows: int = 0
    keys_frame: Any | None = None

    def frame(self, groups: FileGroups) -> Any | None:
        """None when there is no file at all."""
        parts = []
        if groups.clean:
            parts.append(self._without_keys(self._scan(groups.clean, self._narrow())))
        if groups.by_offset:
            parts.append(self._without_dead(self._scan(groups.by_offset, self._wide())))
        if groups.by_path:
            parts.append(self._without_dead(self._without_deletes(groups.by_path)))
        whole = None
        for frame in map(self._shape, parts):
            whole = frame if whole is None else whole.union(frame)
        return whole

    def _narrow(self) -> tuple[str, ...]:
        key = self.table.descriptor.primary_key if self.keys_frame is not None else ()
        return tuple(dict.fromkeys((*self.columns, *key, *SYSTEM_NAMES)))

    def _wide(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._narrow(), *self.table.descriptor.partition_keys)))

    def _scan(self, files: Sequence[LakeFile], names: Sequence[str]) -> Any:
        return self._parquet([f.path for f in files], parquet_schema(self.table, names, self.field_ids))

    def _parquet(self, paths: Sequence[str], schema: Any | None = None) -> Any:
        reader = self.spark.read.options(**_READ_OPTIONS)
        try:
            frame = (reader if schema is None else reader.schema(schema)).parquet(*map(spark_path, paths))
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise self._missing(str(error).splitlines()[0]) from error
        # Spark does not look for files whose names could be patterns, and leaves out those that are not there.
        if any(_PATTERN & set(path) for path in paths) and len(frame._jdf.inputFiles()) < len(set(paths)):
            raise self._missing(f"one of {len(paths)} files is not there")
        return frame

    def _missing(self, reason: str) -> LakeTampered:
        return LakeTampered(table=str(self.table.path), snapshot=self.snapshot, what="a data file", reason=reason)

    def _shape(self, frame: Any) -> Any:
        """The columns asked for plus the system columns, in the table's own types. Each call into the JVM counts here."""
        wanted = table_schema(self.table, self.columns, SYSTEM_NAMES)
        stored = parquet_schema(self.table, wanted.names, {})
        same = [stored[f.name].dataType == f.dataType for f in wanted.fields]
        casts = [
            f"`{f.name}`" if s else f"cast(`{f.name}` as {f.dataType.simpleString()}) as `{f.name}`"
            for f, s in zip(wanted, same, strict=True)
        ]
        return frame.selectExpr(*casts)

    def _without_dead(self, frame: Any) -> Any:
        if self.dead_frame is not None:
            dead = _small(self.dead_frame, self.dead_rows)
            partition = list(self.table.descriptor.partition_keys)
            if partition:
                frame = frame.join(dead, [*partition, BUCKET, OFFSET], "left_anti")
            else:
                key = dead_key(self.table, F.col(OFFSET), F.col(BUCKET))
                frame = frame.join(dead, key == dead[DEAD], "left_anti")
        return self._without_keys(frame)

    def _without_keys(self, frame: Any) -> Any:
        if self.keys_frame is None:
            return frame
        return frame.join(self.keys_frame, list(self.table.descriptor.primary_key), "left_anti")

    def _without_deletes(self, files: Sequence[LakeFile]) -> Any:
        names = tuple(dict.fromkeys((*self._wide(), *_equality_columns(files))))
        metadata = (F.col("_metadata.file_path").alias(_FILE), F.col("_metadata.row_index").alias(_ROW))
        frame = self._scan(files, names).select(*[F.col(f"`{n}`") for n in names], *metadata)
        return self._without_equal(self._without_positions(frame, files), files)

    def _without_positions(self, frame: Any, files: Sequence[LakeFile]) -> Any:
        """By (file, row index). Delete files spell a path as the lake does, `_metadata` as a URL: the small side is translated."""
        deletes = {d.path: d for f in files for d in f.deletes if d.content == "positions"}
        if not deletes:
            return frame
        spelled = [(spelling, url) for f in files for spelling in spellings(f.path) for url in self._urls(f.path)]
        names = self.spark.createDataFrame(spelled, f"file_path string, {_FILE} string")
        gone = self._parquet(list(deletes)).select("file_path", F.col("pos").alias(_ROW)).join(F.broadcast(names), "file_path")
        rows = sum(d.record_count for d in deletes.values())
        return frame.join(_small(gone.select(_FILE, _ROW), rows), [_FILE, _ROW], "left_anti")

    def _without_equal(self, frame: Any, files: Sequence[LakeFile]) -> Any:
        """By key, from files older than the delete. Files of one sequence and one set of columns are one join."""
        deletes = {d.path: d for f in files for d in f.deletes if d.content == "equality"}
        if not deletes:
            return frame
        rows = [(url, f.sequence) for f in files for url in self._urls(f.path)]
        frame = frame.join(F.broadcast(self.spark.createDataFrame(rows, f"{_FILE} string, {_SEQUENCE} long")), _FILE)
        together: dict[tuple[tuple[str, ...], int], list[LakeDelete]] = {}
        for delete in deletes.values():
            together.setdefault((delete.equality_columns, delete.sequence), []).append(delete)
        for (columns, sequence), group in together.items():
            keys = self._parquet([d.path for d in group], parquet_schema(self.table, columns, self.field_ids))
            keys = keys.select(*[F.col(f"`{c}`").alias(f"__d_{c}") for c in columns])
            condition = frame[_SEQUENCE] < sequence
            for column in columns:
                condition = condition & frame[f"`{column}`"].eqNullSafe(keys[f"`__d_{column}`"])
            frame = frame.join(_small(keys, sum(d.record_count for d in group)), condition, "left_anti")
        return frame

    def _urls(self, path: str) -> set[str]:
        """As `_metadata.file_path` may spell it: made absolute and escaped by Hadoop, local ones with one slash or three."""
        made = self.spark._jvm.org.apache.hadoop.fs.Path(spark_path(path))
        conf = self.spark._jsparkSession.sessionState().newHadoopConf()
        url = str(made.getFileSystem(conf).makeQualified(made).toUri().toString())
        return {url, url.replace("file:///", "file:/", 1)} if url.startswith("file:///") else {url}


def _equality_columns(files: Sequence[LakeFile]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c for f in files for d in f.deletes for c in d.equality_columns))


def _small(frame: Any, rows: int) -> Any:
    return F.broadcast(frame) if rows <= BROADCAST_ROWS else frame
