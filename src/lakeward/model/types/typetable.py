# SPDX-License-Identifier: Apache-2.0
"""The one table of column types: what each is called in SQL, Arrow, Iceberg, Spark and Fluss, and where it may stand.

A type is added here (and its class in `types`). Who maps types reads this table; tests/unit/model/test_typetable.py
sends the examples of every row through everything that handles values, and fails for what a row lacks.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from lakeward.model import types as t
from lakeward.model.types import DataType


@dataclass(frozen=True, kw_only=True)
class TypeRow:
    """`arrow` by Arrow's alias, so that who reads this table need not load Arrow; None: it depends on the type's
    parameters, `model.arrow` works it out. `iceberg` and `spark` are those
    systems' own words for it, with the parameters in braces; None: nested, mapped by structure."""

    cls: type[DataType]
    arrow: str | None
    iceberg: str | None
    spark: str | None
    fluss: str | None
    """None: Fluss has no such type."""

    delta: str | None = None
    avro: str | None = None
    """Hudi's Avro type, with the logical type after a colon. None: Hudi has no such type, or it is nested."""

    paimon: str | None = None
    """None: as in SQL."""

    is_spelled: bool = False
    """Arrow has no type for exactly this: its SQL spelling rides in the Arrow field's metadata."""

    example: DataType
    values: tuple[Any, ...]
    """Values that a column of the example's type may hold, the awkward ones first."""

    synonyms: tuple[str, ...] = ()
    also_from: tuple[str, ...] = ()
    """Arrow types that become this one where somebody hands them in."""

    bucket_key_of: frozenset[str] = frozenset()
    """Bucket functions that have an encoding for it, and whose lake transform takes it."""

    partition_key: bool = False
    """Its text in a partition's name reads back as one value and one only."""

    primary_key: bool = True
    is_part: bool = True
    """May stand inside of arrays, maps and rows."""

    def __post_init__(self) -> None:
        assert type(self.example) is self.cls

    @property
    def parameters(self) -> tuple[str, ...]:
        """In the order in which SQL writes them."""
        return tuple(name for name in vars(self.example) if name != "nullable")


_ALL = frozenset({"fluss", "paimon", "hudi", "iceberg"})
_NOT_ICEBERG = _ALL - {"iceberg"}
_NOT_HUDI = _ALL - {"hudi"}
_DAY = dt.date(1969, 12, 31)
_MOMENT = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
_NAN = float("nan")

TYPES: tuple[TypeRow, ...] = (
    TypeRow(
        cls=t.BooleanType, delta="boolean", avro="boolean", arrow="bool", iceberg="boolean", spark="boolean",
        fluss="BOOLEAN", synonyms=("BOOL",), example=t.BooleanType(), values=(False, True), bucket_key_of=_NOT_ICEBERG,
        partition_key=True,
    ),
    TypeRow(
        cls=t.Int8Type, delta="byte", avro="int", arrow="int8", iceberg="int", spark="tinyint", fluss="TINYINT",
        synonyms=("INT8",), example=t.Int8Type(), values=(-(2**7), 2**7 - 1), bucket_key_of=_NOT_ICEBERG,
        partition_key=True,
    ),
    TypeRow(
        cls=t.Int16Type, delta="short", avro="int", arrow="int16", iceberg="int", spark="smallint", fluss="SMALLINT",
        synonyms=("INT16",), also_from=("uint8",), example=t.Int16Type(), values=(-(2**15), 2**15 - 1),
        bucket_key_of=_NOT_ICEBERG, partition_key=True,
    ),
    TypeRow(
        cls=t.Int32Type, delta="integer", avro="int", arrow="int32", iceberg="int", spark="int", fluss="INTEGER",
        synonyms=("INTEGER", "INT32"), also_from=("uint16",), example=t.Int32Type(), values=(-(2**31), 2**31 - 1),
        bucket_key_of=_ALL, partition_key=True,
    ),
    TypeRow(
        cls=t.Int64Type, delta="long", avro="long", arrow="int64", iceberg="long", spark="bigint", fluss="BIGINT",
        synonyms=("LONG", "INT64"), also_from=("uint32",), example=t.Int64Type(), values=(-(2**63), 2**63 - 1),
        bucket_key_of=_ALL, partition_key=True,
    ),
    TypeRow(
        cls=t.Float32Type, delta="float", avro="float", arrow="float", iceberg="float", spark="float", fluss="FLOAT",
        synonyms=("FLOAT32",), example=t.Float32Type(), values=(-0.0, _NAN, float("inf"), 1.5),
        bucket_key_of=_NOT_ICEBERG, primary_key=False,
    ),
    TypeRow(
        cls=t.Float64Type, delta="double", avro="double", arrow="double", iceberg="double", spark="double",
        fluss="DOUBLE", synonyms=("FLOAT64",), example=t.Float64Type(), values=(-0.0, _NAN, float("-inf"), 0.1),
        bucket_key_of=_NOT_ICEBERG, primary_key=False,
    ),
    TypeRow(
        cls=t.DecimalType, delta="decimal({precision},{scale})", avro="fixed:decimal", arrow=None,
        iceberg="decimal({precision}, {scale})", spark="decimal({precision},{scale})", fluss="DECIMAL",
        synonyms=("NUMERIC",), example=t.DecimalType(precision=20, scale=4),
        values=(Decimal("-0.0001"), Decimal("1234567890123456.7890")), bucket_key_of=_ALL,
    ),
    TypeRow(
        cls=t.CharType, delta="string", avro="string", is_spelled=True, arrow="string", iceberg="string",
        spark="string", fluss="CHAR", example=t.CharType(length=3), values=("a ", "üñö"), bucket_key_of=_ALL,
        partition_key=True,
    ),
    TypeRow(
        cls=t.StringType, delta="string", avro="string", arrow="string", iceberg="string", spark="string",
        fluss="STRING", synonyms=("TEXT",), also_from=("large_string", "string_view"), example=t.StringType(),
        values=("", 'quo"te,\nline', "日本"), bucket_key_of=_ALL, partition_key=True,
    ),
    TypeRow(
        cls=t.BinaryType, delta="binary", avro="bytes", arrow=None, iceberg="binary", spark="binary", fluss="BINARY",
        example=t.BinaryType(length=3), values=(b"\x00\xff\n",), bucket_key_of=_NOT_HUDI,
    ),
    TypeRow(
        cls=t.BytesType, delta="binary", avro="bytes", arrow="binary", iceberg="binary", spark="binary", fluss="BYTES",
        synonyms=("VARBINARY",), also_from=("large_binary", "binary_view"), example=t.BytesType(),
        values=(b"", b"\x00\xff\n"), bucket_key_of=_NOT_HUDI,
    ),
    TypeRow(
        cls=t.DateType, delta="date", avro="int:date", arrow="date32", iceberg="date", spark="date", fluss="DATE",
        example=t.DateType(), values=(_DAY, dt.date(9999, 12, 31)), bucket_key_of=_ALL, partition_key=True,
    ),
    TypeRow(
        cls=t.TimeType, is_spelled=True, arrow=None, iceberg="time", spark="time({precision})",
        fluss="TIME_WITHOUT_TIME_ZONE", example=t.TimeType(precision=3),
        values=(dt.time(0, 0), dt.time(23, 59, 59, 999_000)), bucket_key_of=_ALL,
    ),
    TypeRow(
        cls=t.TimestampType, delta="timestamp_ntz", avro="long:local-timestamp-micros", is_spelled=True, arrow=None,
        iceberg="timestamp", spark="timestamp_ntz", fluss="TIMESTAMP_WITHOUT_TIME_ZONE",
        example=t.TimestampType(precision=6), values=(_MOMENT,), bucket_key_of=_ALL,
    ),
    TypeRow(
        cls=t.TimestampLtzType, paimon="TIMESTAMP({precision}) WITH LOCAL TIME ZONE", delta="timestamp",
        avro="long:timestamp-micros", is_spelled=True, arrow=None, iceberg="timestamptz", spark="timestamp",
        synonyms=("TIMESTAMPTZ",), fluss="TIMESTAMP_WITH_LOCAL_TIME_ZONE", example=t.TimestampLtzType(precision=6),
        values=(_MOMENT.replace(tzinfo=dt.UTC),), bucket_key_of=_NOT_ICEBERG,
    ),
    TypeRow(
        cls=t.ArrayType, arrow=None, iceberg=None, spark=None, fluss="ARRAY",
        example=t.ArrayType(element=t.Float64Type()), values=([], [None, _NAN], [1.0, -0.0]), primary_key=False,
    ),
    TypeRow(
        cls=t.VectorType, arrow=None, iceberg=None, spark=None, fluss=None, example=t.VectorType(length=3),
        values=([-0.0, 1.5, _NAN], [0.0, 0.0, 0.0]), primary_key=False, is_part=False,
    ),
    TypeRow(
        cls=t.MapType, arrow=None, iceberg=None, spark=None, fluss="MAP",
        example=t.MapType(key=t.StringType(nullable=False), value=t.Int32Type()), values=([], [("k", None), ("", 1)]),
        primary_key=False,
    ),
    TypeRow(
        cls=t.RowType, arrow=None, iceberg=None, spark=None, fluss="ROW", synonyms=("STRUCT",),
        example=t.RowType(
            fields=(t.RowField(name="a b", type=t.Int32Type()), t.RowField(name="s", type=t.StringType()))
        ),
        values=({"a b": None, "s": ""}, {"a b": 1, "s": None}), primary_key=False,
    ),
)  # fmt: skip
BY_CLASS: dict[type[DataType], TypeRow] = {row.cls: row for row in TYPES}


def row_of(kind: DataType) -> TypeRow:
    return BY_CLASS[type(kind)]


def plain_types(system: str) -> dict[str, DataType]:
    """The types that a system's words without parameters stand for; of several the last that Arrow has."""
    ordered = sorted(TYPES, key=lambda r: not r.is_spelled)
    return {word: r.cls() for r in ordered if (word := getattr(r, system)) is not None and "{" not in word}


def spell(kind: DataType, system: str) -> str | None:
    """Name of this type in another system; None for nested types. `system` is a column of the type table."""
    word: str | None = getattr(row_of(kind), system)
    return None if word is None else word.format(**vars(kind))
