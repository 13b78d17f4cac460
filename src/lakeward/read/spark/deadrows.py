# SPDX-License-Identifier: Apache-2.0
"""Lake rows that are no more, by (partition, bucket, offset), and how they are taken out of a DataFrame: a condition
where they lie in a few runs, a bitmap where offsets are not too high, else an anti-join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from lakeward.model import (
    BUCKET,
    OFFSET,
    Bucket,
    OffsetRange,
    OffsetSet,
    PartitionKey,
    PartitionUnit,
    TableInfo,
    TimestampLtzType,
    partition_values,
    to_arrow_schema,
)
from lakeward.read.spark.arrowframe import arrow_frame
from lakeward.read.spark.schema import SYSTEM_TYPES, spark_type, table_schema

BROADCAST_ROWS = 2_000_000
"""Anti-join sides up to this size are broadcast: 16 to 60 bytes a row stays far below Spark's own broadcast limit."""

MOST_RUNS = 16
"""Each run is one more comparison for every row of the scan: 16 of them took 30 ms over 5 M rows, a join some 200."""

MOST_BITS = 64_000_000
"""A bitmap of 8 MB travels with the tasks of a query. Counting 5 M rows less 120 k spread ones took 0.18 s with one,
0.56 with a join.
"""

_TIME = "__time"
"""Before a partition key's number: its time as a long, in a DataFrame that has the column that it is of."""

_BITS = "__bits"
_DEAD = "__dead"
"""`__offset` and `__bucket` as one long: Spark probes a long far faster than a pair."""


def small(frame: Any, rows: int) -> Any:
    return F.broadcast(frame) if rows <= BROADCAST_ROWS else frame


def runs_of(offsets: OffsetSet) -> list[OffsetRange]:
    """The set as ranges without gaps, ascending. Pure."""
    values = offsets.values
    if not len(values):
        return []
    ends = np.flatnonzero(np.diff(values) > 1)
    starts = values[np.concatenate([[0], ends + 1])]
    stops = values[np.concatenate([ends, [len(values) - 1]])] + 1
    return [OffsetRange(int(a), int(b)) for a, b in zip(starts, stops, strict=True)]


@dataclass(frozen=True)
class DeadRows:
    table: TableInfo
    by_bucket: Mapping[Bucket, OffsetSet]
    most_runs: int = MOST_RUNS
    most_bits: int = MOST_BITS

    @cached_property
    def count(self) -> int:
        return sum(len(s) for s in self.by_bucket.values())

    def take_out(self, spark: Any, frame: Any) -> Any:
        """The frame without them. It has `__bucket`, `__offset` and the partition keys."""
        if not self.count:
            return frame
        runs = {b: runs_of(s) for b, s in self.by_bucket.items() if s}
        if sum(map(len, runs.values())) <= self.most_runs:
            return frame.filter(self._condition(runs))
        if self._fits_bitmap():
            return frame.filter(self._bit(spark) == 0)
        dead = small(self._frame(spark), self.count)
        keys = self.table.descriptor.partitioning
        if keys:
            times = {_name(at, k): F.expr(_time(k, self.table)) for at, k in enumerate(keys) if k.unit is not None}
            named = frame.withColumns(times) if times else frame
            on = [*(_name(at, k) for at, k in enumerate(keys)), BUCKET, OFFSET]
            return named.join(dead, on, "left_anti").select(frame.columns)
        return frame.join(dead, self._key(F.col(OFFSET), F.col(BUCKET)) == dead[_DEAD], "left_anti")

    def _condition(self, runs: Mapping[Bucket, list[OffsetRange]]) -> str:
        """Rows of others may have no offset: they stay, as they do in a join."""
        conditions = [
            f"({self._is_in(b)} and `{OFFSET}` between {r.start} and {r.stop - 1})"
            for b, rs in runs.items()
            for r in rs
        ]
        return f"not coalesce({' or '.join(conditions)}, false)"

    def _is_in(self, bucket: Bucket) -> str:
        facts = [f"`{BUCKET}` = {bucket.number}"]
        for key, text in zip(self.table.descriptor.partitioning, partition_values(bucket.partition), strict=True):
            if key.unit is not None:
                facts.append(f"{_time(key, self.table)} = {key.unit.number(text)}")
                continue
            kind = spark_type(key.column, self.table.schema.column(key.column).type).simpleString()
            facts.append(f"`{key}` = cast({_literal(text)} as {kind})")
        return " and ".join(facts)

    def _fits_bitmap(self) -> bool:
        """Scalar subqueries are columns from Spark 4 on."""
        if self.table.descriptor.is_partitioned or not hasattr(DataFrame, "scalar"):
            return False
        return int(self._keys().max()) < self.most_bits

    def _bit(self, spark: Any) -> Any:
        """1 for a row that is no more. The bitmap is one array, found once for a query; beyond its end there is nothing
        dead.
        """
        words = to_words(self._keys())
        held = pa.table({_BITS: pa.array([words], pa.list_(pa.int64()))})
        bits = spark.createDataFrame(held, schema=f"{_BITS} array<bigint>").scalar()
        key = self._key(F.col(OFFSET), F.col(BUCKET))
        # Capped: the word of a very high offset is no int, and Spark refuses such a cast.
        word = F.get(bits, F.least(F.shiftright(key, 6), F.lit(len(words)).cast("bigint")).cast("int"))
        return F.coalesce(F.bit_get(word, key.bitwiseAND(63).cast("int")), F.lit(0))

    def _keys(self) -> npt.NDArray[np.int64]:
        return np.concatenate(
            [self._key(offsets.values, bucket.number) for bucket, offsets in self.by_bucket.items() if offsets]
        )

    def _key(self, offset: Any, bucket: Any) -> Any:
        """One long for a row of an unpartitioned table, of columns of Spark and of arrays alike."""
        return offset * self.table.descriptor.bucket_count + bucket

    def _frame(self, spark: Any) -> Any:
        if not self.table.descriptor.is_partitioned:
            return arrow_frame(spark, pa.table({_DEAD: pa.array(self._keys())}), f"{_DEAD} long not null")
        held = {b: s for b, s in self.by_bucket.items() if s}
        parts = [pa.table(self._columns(bucket, offsets)) for bucket, offsets in held.items()]
        schema = StructType()
        for at, key in enumerate(self.table.descriptor.partitioning):
            if key.unit is not None:
                schema = schema.add(_name(at, key), LongType(), False)
            else:
                schema = schema.add(table_schema(self.table, [key.column]).fields[0])
        for name in (BUCKET, OFFSET):
            schema = schema.add(name, SYSTEM_TYPES[name], False)
        return arrow_frame(spark, pa.concat_tables(parts), schema)

    def _columns(self, bucket: Bucket, offsets: OffsetSet) -> dict[str, pa.Array]:
        typed, count = to_arrow_schema(self.table.schema), len(offsets)
        columns = {}
        keys = enumerate(zip(self.table.descriptor.partitioning, partition_values(bucket.partition), strict=True))
        for at, (key, text) in keys:
            kind = typed.field(key.column).type
            value = pa.scalar(text).cast(kind) if key.unit is None else pa.scalar(key.unit.number(text), pa.int64())
            columns[_name(at, key)] = pa.repeat(value, count)
        columns[BUCKET] = pa.repeat(pa.scalar(bucket.number, pa.int32()), count)
        columns[OFFSET] = pa.array(offsets.values)
        return columns


def to_words(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bit k of the whole is set for each key k: word k // 64, lowest bit first. Pure."""
    bits = np.zeros((int(keys.max()) // 64 + 1) * 64, np.uint8)
    bits[keys] = 1
    return np.packbits(bits, bitorder="little").view("<i8").astype(np.int64)


def _name(at: int, key: PartitionKey) -> str:
    return key.column if key.unit is None else f"{_TIME}{at}"


def _time(key: PartitionKey, table: TableInfo) -> str:
    """The number of a row's year, month, day or hour in Spark's SQL, whatever the session's time zone."""
    column, is_utc = f"`{key.column}`", isinstance(table.schema.column(key.column).type, TimestampLtzType)
    hour = _floored(f"unix_micros({column})", 3_600_000_000)
    day = _floored(hour, 24)
    if not is_utc:
        day = f"cast(unix_date(cast({column} as date)) as bigint)"
        hour = f"({day} * 24 + hour({column}))"
    if key.unit in (PartitionUnit.HOUR, PartitionUnit.DAY):
        return hour if key.unit is PartitionUnit.HOUR else day
    date = f"date_from_unix_date(cast({day} as int))"
    years = f"(year({date}) - 1970L)"
    return years if key.unit is PartitionUnit.YEAR else f"({years} * 12 + month({date}) - 1)"


def _floored(number: str, by: int) -> str:
    """In whole numbers: Spark's `/` is of doubles, and `div` goes towards zero."""
    return f"(({number} - pmod({number}, {by}L)) div {by}L)"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
