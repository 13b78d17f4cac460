# SPDX-License-Identifier: Apache-2.0
"""How a Parquet file is encoded: which columns get a dictionary, and how it is compressed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_SAMPLE_ROWS = 16_384
_PAYS = 0.1
"""A dictionary pays while at most so many values in the sample are different: above, its pages outgrow their limit and
Parquet falls back to plain after having hashed everything."""


def dictionary_columns(table: pa.Table) -> list[str]:
    """Leaf columns where a dictionary pays, judged on the first rows; nested leaves always have one."""
    chosen: list[str] = []
    sample = table.slice(0, _SAMPLE_ROWS)
    for field, column in zip(table.schema, sample.columns, strict=True):
        if pa.types.is_nested(field.type):
            chosen += leaf_paths(field, field.name)
        elif (
            not pa.types.is_boolean(field.type)
            and pc.count_distinct(column, mode="all").as_py() <= _PAYS * len(sample) + 1
        ):
            chosen.append(field.name)
    return chosen


def leaf_paths(field: pa.Field, path: str) -> list[str]:
    """Parquet's names of the leaves below a nested field."""
    kind = field.type
    if pa.types.is_map(kind):
        key, value = kind.key_field, kind.item_field
        return [*leaf_paths(key, f"{path}.key_value.key"), *leaf_paths(value, f"{path}.key_value.value")]
    if pa.types.is_list(kind):
        return leaf_paths(kind.value_field, f"{path}.list.element")
    if pa.types.is_struct(kind):
        return [leaf for child in kind for leaf in leaf_paths(child, f"{path}.{child.name}")]
    return [path]


_SMALL_BYTES = 128 * 1024
"""Of Arrow. A reader sets zstd up for every column of a file, which takes longer than to decode so little: 100 rows of
ten columns are read in 0.18 ms with snappy, in 0.45 ms with zstd, and take a quarter less room with the latter."""


def gzip_level(codec: str) -> int | None:
    """The level of gzip where a table sets none. Arrow's default, 9, takes five times the CPU for 0.2 % less."""
    return 6 if codec == "gzip" else None


def choose_codec(first: pa.Table) -> str:
    """`first` is the row group that the file begins with: one as small as that is its only one."""
    return "snappy" if first.nbytes < _SMALL_BYTES else "zstd"


_DICTIONARY_BYTES = 2 * 1024 * 1024


def parquet_options(first: pa.Table) -> dict[str, Any]:
    """Of Arrow's writer, for a file that begins with these rows."""
    return {
        "compression": choose_codec(first),
        "use_dictionary": dictionary_columns(first),
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "store_schema": False,  # with ARROW:schema other readers take large_string and fail
    }
