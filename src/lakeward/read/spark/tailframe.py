# SPDX-License-Identifier: Apache-2.0
"""The hot tail as a DataFrame: small tails through the driver, big ones read by executors over Flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakeward.model import LAKE_FIELDS, LAKE_NAMES, Bucket, TableInfo, map_leaves, to_arrow_field
from lakeward.read.arrow import OpenRead, conform
from lakeward.read.piece import ReadPiece, read_piece
from lakeward.read.predicate import Predicate, parse_filter
from lakeward.read.request import filter_schema
from lakeward.read.spark.arrowframe import arrow_frame
from lakeward.read.spark.schema import table_schema
from lakeward.read.tail import TailFold, read_live
from lakeward.read.unionrows import append_bucket

DRIVER_ROWS = 200_000
"""Tails up to this many offsets go through the driver: one Arrow table costs less there than a stage of Python workers.
"""


def arrow_schema(table: TableInfo, columns: Sequence[str]) -> pa.Schema:
    """Schema of the data that Spark takes from Python, with Spark's types."""
    fields = [*(to_arrow_field(table.schema.column(name)) for name in columns), *LAKE_FIELDS]
    return pa.schema([pa.field(f.name, spark_arrow_type(f.type), f.nullable) for f in fields])


def spark_arrow_type(kind: pa.DataType) -> pa.DataType:
    """Spark has one timestamp unit, one time unit, no fixed-size binary and no fixed-size list."""
    return map_leaves(kind, _spark_leaf)


def _spark_leaf(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.time64("ns")
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind


def driver_tail(spark: Any, opened: OpenRead, columns: Sequence[str], folds: Mapping[Bucket, TailFold]) -> Any:
    """The tail read here and handed to Spark as one Arrow table."""
    schema = arrow_schema(opened.table, columns)
    batches = [conform(b, schema) for b in _tail_batches(opened, columns, folds)]
    table = pa.Table.from_batches(batches, schema=schema)
    return arrow_frame(spark, table, table_schema(opened.table, columns, LAKE_NAMES))


def _tail_batches(
    opened: OpenRead, columns: Sequence[str], folds: Mapping[Bucket, TailFold]
) -> Iterator[pa.RecordBatch]:
    for bucket, tail in opened.union.tails.items():
        rows = (
            read_live(opened.hot, opened.table, folds[bucket], columns)
            if bucket in folds
            else opened.hot.read_log(opened.table, bucket, tail.start, tail.stop, columns)
        )
        yield from (append_bucket(b, bucket) for b in rows)


def empty_frame(spark: Any, table: TableInfo, columns: Sequence[str]) -> Any:
    return spark.createDataFrame([], table_schema(table, columns, LAKE_NAMES))


def pieces_frame(
    spark: Any, table: TableInfo, pieces: Sequence[ReadPiece], columns: Sequence[str], filter: Predicate | None = None
) -> Any:
    """Pieces read by executors, one task each. The filter reaches the lake's files there; rows of the hot side come
    unfiltered.
    """
    schema = arrow_schema(table, columns)
    spelled = table_schema(table, columns, LAKE_NAMES)
    rows = [(piece.to_bytes(),) for piece in pieces]
    seed = spark.sparkContext.parallelize(rows, max(1, len(rows))).toDF("piece binary")
    names, conditions = tuple(columns), [list(group) for group in filter.any_of] if filter else []

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        row_filter = parse_filter(conditions, filter_schema(table)) if conditions else None
        for batch in batches:
            for data in batch.column(0).to_pylist():
                for rows in read_piece(
                    ReadPiece.from_bytes(data),
                    names,
                    row_filter.expression if row_filter else None,
                    row_filter.columns if row_filter else (),
                ):
                    yield conform(rows, schema)

    return seed.mapInArrow(read, spelled)


def keys_frame(spark: Any, folds: Mapping[Bucket, TailFold]) -> Any | None:
    """Keys the tail touched, where the changelog has no `__prev_offset`; None when it has, or when there are none."""
    tables = [f.keys for f in folds.values() if f.keys is not None and f.keys.num_rows]
    return arrow_frame(spark, pa.concat_tables(tables)) if tables else None
