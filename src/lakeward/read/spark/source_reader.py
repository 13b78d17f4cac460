# SPDX-License-Identifier: Apache-2.0
"""The batch reader behind `spark.read.format("lakeward")`: one Spark partition per bucket, Arrow batches, filters pushed down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds

from lakeward.model.schema import BUCKET, OFFSET, TIMESTAMP
from lakeward.read.arrow import ReadRequest, conform, open_read
from lakeward.read.piece import ReadPiece, plan_pieces, read_piece
from lakeward.read.predicate import parse_filter
from lakeward.read.spark.options import SourceOptions
from lakeward.read.spark.tailframe import arrow_schema
from lakeward.spi.registry import load_hot

_COMPARISONS = {"EqualTo": "==", "GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<", "LessThanOrEqual": "<=", "In": "in"}

Condition = tuple[str, str, Any]


class PiecePartition(ds.InputPartition):  # type: ignore[misc]
    def __init__(self, piece: bytes) -> None:
        self.piece = piece


class UnionSourceReader(ds.DataSourceReader):  # type: ignore[misc]
    """Made on the driver, pickled to executors by Spark itself; holds options and conditions only."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self.options, self.columns = options, columns
        self.conditions: list[Condition] = []

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Takes comparisons of a top-level column with a value; the rest stays with Spark."""
        for condition in filters:
            taken = to_condition(condition)
            if taken is None:
                yield condition
            else:
                self.conditions.append(taken)

    def partitions(self) -> list[PiecePartition]:
        plugin = load_hot(self.options.hot_name, self.options.hot_options)
        request = ReadRequest(
            path=self.options.table,
            mode=self.options.mode,
            as_of=self.options.as_of,
            lease_s=self.options.lease_s,
            columns=self._user_columns,
        )
        opened = open_read(plugin, request)
        opened.lease.detach()
        return [PiecePartition(p.to_bytes()) for p in plan_pieces(plugin, opened)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        piece = ReadPiece.from_bytes(partition.piece)
        predicate = parse_filter(self.conditions, piece.table.schema.names) if self.conditions else None
        schema = arrow_schema(piece.table, self._user_columns)
        wanted = [*self._user_columns, *[c for c in self.columns if c not in self._user_columns]]
        expression = predicate.expression if predicate else None
        for batch in read_piece(piece, self._user_columns, expression, predicate.columns if predicate else ()):
            kept = predicate.apply(batch) if predicate else batch
            if kept.num_rows:
                yield conform(kept, schema).select(wanted)

    @property
    def _user_columns(self) -> tuple[str, ...]:
        return tuple(c for c in self.columns if c not in (BUCKET, OFFSET, TIMESTAMP))


def to_condition(condition: Any) -> Condition | None:
    """Spark's filter as (column, operator, value); None where it is of another kind."""
    operator = _COMPARISONS.get(type(condition).__name__)
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    value = getattr(condition, "value", None)
    if operator is None or len(attribute) != 1 or value is None:
        return None
    if operator == "in":
        return (attribute[0], "in", list(value)) if all(v is not None for v in value) else None
    return (attribute[0], operator, value)
