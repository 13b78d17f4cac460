# SPDX-License-Identifier: Apache-2.0
"""Random model values: types, schemas, buckets, offsets, tables. Shared by the property tests."""

from __future__ import annotations

import string

from hypothesis import strategies as st

from lakeward.model import (
    SYSTEM_COLUMNS,
    ArrayType,
    BinaryType,
    Bucket,
    BucketFunction,
    CharType,
    Column,
    DataType,
    DecimalType,
    LogSplit,
    MapType,
    OffsetMap,
    OffsetRange,
    RowField,
    RowType,
    Schema,
    SnapshotSplit,
    Split,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    TimestampLtzType,
    TimestampType,
    TimeType,
    partition_name,
)
from lakeward.model import TYPES as TYPE_ROWS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
OFFSETS = st.integers(0, 2**62)
_PRECISION = st.integers(0, 9)
ATOMIC = [r.cls for r in TYPE_ROWS if not set(vars(r.example)) - {"nullable"}]
_NULLABLE = st.booleans()
# Any name that a person may choose: quotes, blanks inside, keywords, other scripts.
NAMES = (TEXT | st.sampled_from(["not", "NULL", "comment", "a`b", "it's", "x y", "`", "naïve", "行"])).filter(
    lambda n: bool(n) and n == n.strip() and "\x00" not in n and n not in SYSTEM_COLUMNS
)


def _decimals() -> st.SearchStrategy[DataType]:
    def make(precision: int, scale: int, nullable: bool) -> DataType:
        return DecimalType(precision=precision, scale=min(scale, precision), nullable=nullable)

    return st.builds(make, st.integers(1, 38), st.integers(0, 38), _NULLABLE)


def atomic_types() -> st.SearchStrategy[DataType]:
    plain = [st.builds(kind, nullable=_NULLABLE) for kind in ATOMIC]
    precise = [
        st.builds(kind, precision=_PRECISION, nullable=_NULLABLE)
        for kind in (TimeType, TimestampType, TimestampLtzType)
    ]
    sized = [st.builds(kind, length=st.integers(1, 1_000), nullable=_NULLABLE) for kind in (CharType, BinaryType)]
    return st.one_of(*plain, *precise, *sized, _decimals())


def _rows(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    fields = st.lists(
        st.builds(RowField, name=NAMES, type=inner, comment=st.none() | TEXT),
        min_size=1,
        max_size=3,
        unique_by=lambda f: f.name,
    )
    return st.builds(lambda f, n: RowType(fields=tuple(f), nullable=n), fields, _NULLABLE)


def _nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    arrays = st.builds(ArrayType, element=inner, nullable=_NULLABLE)
    maps = st.builds(MapType, key=inner, value=inner, nullable=_NULLABLE)
    return arrays | maps | _rows(inner)


TYPES: st.SearchStrategy[DataType] = st.recursive(atomic_types(), _nested, max_leaves=6)
COLUMNS = st.lists(
    st.builds(Column, name=NAMES, type=TYPES, comment=st.none() | TEXT),
    min_size=1,
    max_size=6,
    unique_by=lambda c: c.name,
)
SCHEMAS = st.builds(lambda c, i: Schema(columns=tuple(c), schema_id=i), COLUMNS, st.integers(1, 1_000))

PARTITION_VALUES = st.text(string.ascii_letters + string.digits + "-_=+. é", min_size=1, max_size=8).filter(
    lambda v: v not in (".", "..")
)
PARTITIONS = st.just("") | st.lists(PARTITION_VALUES, min_size=1, max_size=2).map(partition_name)
BUCKETS = st.builds(Bucket, PARTITIONS, st.integers(0, 5_000))
OFFSET_MAPS = st.dictionaries(BUCKETS, OFFSETS, max_size=8).map(OffsetMap)
RANGES = st.tuples(OFFSETS, OFFSETS).map(lambda pair: OffsetRange(min(pair), max(pair)))
SPLITS: st.SearchStrategy[Split] = st.one_of(
    st.builds(LogSplit, bucket=BUCKETS, range=RANGES, index=st.integers(0, 99)),
    st.builds(SnapshotSplit, bucket=BUCKETS, snapshot_id=TEXT, log_offset=OFFSETS, index=st.integers(0, 99)),
)

_WORDS = st.text(string.ascii_letters + string.digits + "_", min_size=1, max_size=12)
PATHS = st.builds(TablePath, _WORDS, _WORDS)
PROPERTIES = st.dictionaries(TEXT, TEXT, max_size=3)


@st.composite
def descriptors(draw: st.DrawFn) -> TableDescriptor:
    schema = draw(SCHEMAS)
    key = tuple(c.name for c in schema.columns if not c.type.nullable)[:2] if draw(st.booleans()) else ()
    free = () if key else tuple(schema.names)
    return TableDescriptor(
        schema=schema,
        primary_key=key,
        partition_keys=free[1:2] if draw(st.booleans()) else (),
        bucket_keys=free[:1] if draw(st.booleans()) else (),
        bucket_count=draw(st.integers(1, 64)),
        bucket_function=draw(st.sampled_from(BucketFunction)),
        properties=draw(PROPERTIES),
        comment=draw(st.none() | TEXT),
    )


TABLES = st.builds(
    TableInfo,
    path=PATHS,
    table_id=st.uuids().map(lambda u: TableId(str(u))),
    descriptor=descriptors(),
    created_at_ms=st.integers(0, 2**53),
)
