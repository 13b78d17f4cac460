# SPDX-License-Identifier: Apache-2.0
"""The batch reader behind `spark.read.format("lakeward")`: one Spark partition per bucket, Arrow batches, filters
pushed down.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.pandas.types import to_arrow_schema

from lakeward.errors import InvalidRequest
from lakeward.model import LAKE_NAMES
from lakeward.read.arrow import ReadRequest, conform, open_read
from lakeward.read.piece import ReadPiece, plan_pieces, read_piece
from lakeward.read.predicate import Condition, parse_filter
from lakeward.read.request import filter_schema
from lakeward.read.spark.condition import pushed_condition
from lakeward.read.spark.options import SourceOptions
from lakeward.read.spark.tailframe import arrow_schema
from lakeward.spi import PROCESS_PLUGINS, Plugin

FILTER_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class PiecePartition(ds.InputPartition):  # type: ignore[misc]
    def __init__(self, piece: bytes) -> None:
        self.piece = piece


class UnionSourceReader(ds.DataSourceReader):  # type: ignore[misc]
    """Made on the driver, pickled to executors by Spark itself; holds options, schema and conditions only."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self.options, self.schema, self.columns = options, schema, tuple(schema.names)
        self.conditions: list[Condition] = []

    def partitions(self) -> list[PiecePartition]:
        plugin = PROCESS_PLUGINS.hot(Plugin(name=self.options.hot_name, options=self.options.hot_options))
        request = ReadRequest(
            path=self.options.table,
            mode=self.options.mode,
            as_of=self.options.as_of,
            cut=self.options.cut,
            at_least=self.options.at_least,
            filter=[self.conditions] if self.conditions else None,
            lease_s=self.options.lease_s,
            columns=self._user_columns,
        )
        opened = open_read(plugin, request)
        opened.lease.detach()
        return [PiecePartition(p.to_bytes()) for p in plan_pieces(plugin, opened)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if partition is None:  # Spark's way to read a plan without partitions
            return
        piece = ReadPiece.from_bytes(partition.piece)
        predicate = parse_filter([self.conditions], filter_schema(piece.table)) if self.conditions else None
        schema = arrow_schema(piece.table, self._user_columns)
        expression = predicate.expression if predicate else None
        for batch in read_piece(piece, self._user_columns, expression, predicate.columns if predicate else ()):
            matching_rows = predicate.apply(batch) if predicate else batch
            if matching_rows.num_rows:
                yield conform(matching_rows, schema).select(list(self.columns))

    @property
    def _user_columns(self) -> tuple[str, ...]:
        return tuple(c for c in self.columns if c not in LAKE_NAMES)


class FilteringSourceReader(UnionSourceReader):
    """A reader that takes filters. Spark refuses one while `spark.sql.python.filterPushdown.enabled` is off, its
    default.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Takes comparisons of a top-level column with a value: fewer buckets, row groups and rows are read. Spark
        looks at every row once more: its own comparison is the one that counts."""
        for condition in filters:
            taken = pushed_condition(condition, self.schema)
            if taken is not None and _compares(taken, self.schema):
                self.conditions.append(taken)
            yield condition


def is_asked_for_filters() -> bool:
    """Whether Spark made this process to push filters down, which it does where that setting is on. A session that
    found the format by itself may not have it. The module's name is Spark's own matter: under another one no filter is
    taken, every row is read, and Spark filters."""
    return FILTER_WORKER in sys.modules


def _compares(condition: Condition, schema: Any) -> bool:
    """Whether Arrow can compare this column with this value."""
    try:
        return parse_filter([condition], to_arrow_schema(schema)) is not None
    except InvalidRequest:
        return False
