# SPDX-License-Identifier: Apache-2.0
"""The lake's side of a union read by Spark's own Parquet scan, with deletes and replaced rows taken out by
anti-joins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from lakeward.errors import LakeTampered, LakeUnavailable
from lakeward.model import LAKE_NAMES, Offsets, TableInfo
from lakeward.read.spark.arrowframe import arrow_frame
from lakeward.read.spark.deadrows import DeadRows, small
from lakeward.read.spark.lakefiles import FileGroups, scope_keys
from lakeward.read.spark.schema import parquet_schema, table_schema
from lakeward.spi import LakeDelete, LakeFile

_FILE, _ROW, _SCOPE, _SEQUENCE = "__file", "__row", "__scope", "__sequence"
_D_SCOPE, _D_SEQUENCE = "__d___scope", "__d___sequence"

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


@dataclass(frozen=True, kw_only=True)
class LakeScan:
    """Builds the DataFrame. `keys_frame` has the primary key of rows to take out, where offsets do not tell them.
    `deleted_rows` is the lake's answer which rows of a file its vectors take out."""

    spark: Any
    table: TableInfo
    snapshot: str
    columns: tuple[str, ...]
    field_ids: Mapping[str, int]
    dead: DeadRows | None = None
    keys_frame: Any | None = None
    deleted_rows: Callable[[LakeFile], Offsets] | None = None

    def frame(self, groups: FileGroups) -> Any | None:
        """None when there is no file at all."""
        parts = []
        if groups.clean:
            parts.append(self._shape(self._without_keys(self._scan(groups.clean, self._narrow())), self._narrow()))
        if groups.by_offset:
            parts.append(self._shape(self._without_dead(self._scan(groups.by_offset, self._wide())), self._wide()))
        if groups.by_path:
            parts.append(self._shape(self._without_dead(self._without_deletes(groups.by_path))))
        return reduce(lambda one, other: one.union(other), parts) if parts else None

    def _narrow(self) -> tuple[str, ...]:
        key = self.table.descriptor.primary_key if self.keys_frame is not None else ()
        return tuple(dict.fromkeys((*self.columns, *key, *LAKE_NAMES)))

    def _wide(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._narrow(), *self.table.descriptor.partition_columns)))

    def _scan(self, files: Sequence[LakeFile], names: Sequence[str]) -> Any:
        return self._parquet([f.path for f in files], parquet_schema(self.table, names, self.field_ids))

    def _parquet(self, paths: Sequence[str], schema: Any | None = None) -> Any:
        reader = self.spark.read.options(**_READ_OPTIONS)
        try:
            frame = (reader if schema is None else reader.schema(schema)).parquet(*map(spark_path, paths))
        except AnalysisException as error:
            # Called so in PySpark 3.5.
            if getattr(error, "getCondition", error.getErrorClass)() != "PATH_NOT_FOUND":
                raise
            raise self._missing(str(error).splitlines()[0]) from error
        except Py4JJavaError as error:  # a file system that does not let us in, or does not answer
            reason = str(error.java_exception).splitlines()[0]
            raise LakeUnavailable(
                lake=spark_path(paths[0]).partition(":")[0], what=f"read {self.table.path}", reason=reason
            ) from error
        # Spark does not look for files whose names could be patterns, and leaves out those that are not there.
        if any(_PATTERN & set(path) for path in paths) and len(frame._jdf.inputFiles()) < len(set(paths)):
            raise self._missing(f"one of {len(paths)} files is not there")
        return frame

    def _missing(self, reason: str) -> LakeTampered:
        return LakeTampered(table=str(self.table.path), snapshot=self.snapshot, what="a data file", reason=reason)

    def _shape(self, frame: Any, names: Sequence[str] = ()) -> Any:
        """The columns asked for plus the system columns, in the table's own types. `names`: those it has, where they
        are known: each call into the JVM counts here."""
        expected_schema = table_schema(self.table, self.columns, LAKE_NAMES)
        stored = parquet_schema(self.table, expected_schema.names, {})
        same = [stored[f.name].dataType == f.dataType for f in expected_schema.fields]
        if all(same) and list(names) == expected_schema.names:
            return frame
        casts = [
            f"`{f.name}`" if s else f"cast(`{f.name}` as {f.dataType.simpleString()}) as `{f.name}`"
            for f, s in zip(expected_schema, same, strict=True)
        ]
        return frame.selectExpr(*casts)

    def _without_dead(self, frame: Any) -> Any:
        return self._without_keys(frame if self.dead is None else self.dead.take_out(self.spark, frame))

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
        """By (file, row index)."""
        vectors = [f for f in files if any(d.content == "vector" for d in f.deletes)]
        listed = {d.path: d for f in files for d in f.deletes if d.content == "positions"}
        if listed:
            frame = frame.join(self._listed_rows(files, list(listed.values())), [_FILE, _ROW], "left_anti")
        return frame.join(self._vector_rows(vectors), [_FILE, _ROW], "left_anti") if vectors else frame

    def _listed_rows(self, files: Sequence[LakeFile], deletes: Sequence[LakeDelete]) -> Any:
        """Delete files spell a path as the lake does, `_metadata` as a URL: the small side is translated."""
        spelled = [(spelling, url) for f in files for spelling in spellings(f.path) for url in self._urls(f.path)]
        names = self.spark.createDataFrame(spelled, f"file_path string, {_FILE} string")
        gone = (
            self._parquet([d.path for d in deletes])
            .select("file_path", F.col("pos").alias(_ROW))
            .join(F.broadcast(names), "file_path")
        )
        return small(gone.select(_FILE, _ROW), sum(d.record_count for d in deletes))

    def _vector_rows(self, files: Sequence[LakeFile]) -> Any:
        """Deletion vectors are read here: Spark has no reader for them."""
        assert self.deleted_rows is not None
        parts = []
        for file in files:
            rows = pa.array(self.deleted_rows(file), pa.int64())
            parts += [pa.table({_FILE: pa.repeat(url, len(rows)), _ROW: rows}) for url in self._urls(file.path)]
        whole = pa.concat_tables(parts)
        return small(arrow_frame(self.spark, whole, f"{_FILE} string, {_ROW} long"), whole.num_rows)

    def _without_equal(self, frame: Any, files: Sequence[LakeFile]) -> Any:
        """By key, from older files of the delete's own partitions. Deletes of one set of columns are one join."""
        deletes = {d.path: d for f in files for d in f.deletes if d.content == "equality"}
        if not deletes:
            return frame
        scopes, reached = scope_keys(files)
        rows = [(url, scopes[f.path], f.sequence) for f in files for url in self._urls(f.path)]
        named = self.spark.createDataFrame(rows, f"{_FILE} string, {_SCOPE} int, {_SEQUENCE} long")
        frame = frame.join(F.broadcast(named), _FILE)
        together: dict[tuple[str, ...], list[LakeDelete]] = {}
        for delete in deletes.values():
            together.setdefault(delete.equality_columns, []).append(delete)
        for columns, group in together.items():
            keys = self._keys(columns, group, reached)
            condition = (frame[_SCOPE] == keys[_D_SCOPE]) & (frame[_SEQUENCE] < keys[_D_SEQUENCE])
            for column in columns:
                condition = condition & frame[f"`{column}`"].eqNullSafe(keys[f"`__d_{column}`"])
            frame = frame.join(
                small(keys, sum(d.record_count * len(reached[d.path]) for d in group)), condition, "left_anti"
            )
        return frame

    def _keys(self, columns: Sequence[str], deletes: Sequence[LakeDelete], reached: Mapping[str, set[int]]) -> Any:
        """Deleted keys, each with its scope and the sequence number below which it counts."""
        keys = self._parquet([d.path for d in deletes], parquet_schema(self.table, columns, self.field_ids))
        spelled = [F.col(f"`{c}`").alias(f"__d_{c}") for c in columns]
        rows = [(url, scope, d.sequence) for d in deletes for url in self._urls(d.path) for scope in reached[d.path]]
        named = self.spark.createDataFrame(rows, f"{_FILE} string, {_D_SCOPE} int, {_D_SEQUENCE} long")
        return (
            keys.select(*spelled, F.col("_metadata.file_path").alias(_FILE)).join(F.broadcast(named), _FILE).drop(_FILE)
        )

    def _urls(self, path: str) -> set[str]:
        """As `_metadata.file_path` may spell it: made absolute and escaped by Hadoop, local ones with one slash or
        three.
        """
        hadoop_path = self.spark._jvm.org.apache.hadoop.fs.Path(spark_path(path))
        conf = self.spark._jsparkSession.sessionState().newHadoopConf()
        url = str(hadoop_path.getFileSystem(conf).makeQualified(hadoop_path).toUri().toString())
        return {url, url.replace("file:///", "file:/", 1)} if url.startswith("file:///") else {url}


def _equality_columns(files: Sequence[LakeFile]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c for f in files for d in f.deletes for c in d.equality_columns))
