# SPDX-License-Identifier: Apache-2.0
"""Order-free sums of row hashes: how certificates name the rows of a round."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model import OFFSET

SUM = 1 << 63


def sum_rows(batch: pa.RecordBatch, names: Iterable[str]) -> int:
    """The sum of the rows' hashes, modulo 2**63: the same in any order and over any number of batches."""
    columns = [_text(batch.column(name)) for name in (*sorted(names), OFFSET)]
    lengths = [pc.cast(pc.cast(pc.binary_length(column), pa.string()), pa.binary()) for column in columns]
    parts = [part for pair in zip(lengths, columns, strict=True) for part in pair]
    rows = pc.binary_join_element_wise(*parts, b":")
    total = 0
    for row in rows.to_pylist():
        total += int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "big")
    return total % SUM


def hashed_names(schema: pa.Schema) -> tuple[str, ...]:
    """Columns of the table whose values are hashed: nested ones are not."""
    return tuple(f.name for f in schema if not f.name.startswith("__") and not pa.types.is_nested(_storage(f.type)))


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _text(column: pa.Array) -> pa.Array:
    """Each value as bytes, the same whatever width or unit a lake stores it in; NULL as `~`."""
    kind = _storage(column.type)
    plain = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
    if pa.types.is_dictionary(kind):
        return _text(plain.dictionary_decode())
    if pa.types.is_floating(kind):
        bits = plain.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False).view(np.int64)
        plain = pc.if_else(pc.is_valid(plain), pa.array(bits), pa.scalar(None, pa.int64()))
    elif pa.types.is_timestamp(kind):
        plain = plain.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_time(kind):
        plain = plain.cast(pa.time64("us"), safe=False).cast(pa.int64())
    elif pa.types.is_date(kind):
        plain = plain.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_boolean(kind):
        plain = plain.cast(pa.int8())
    if not (pa.types.is_binary(plain.type) or pa.types.is_large_binary(plain.type)):
        plain = pa.array(plain.to_pylist(), pa.binary()) if _is_fixed(plain.type) else plain.cast(pa.string())
    return plain.cast(pa.binary()).fill_null(b"~")


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(kind))


@dataclass(frozen=True, kw_only=True)
class RowSum:
    """The sum over the rows that a split wrote. `names` are the hashed columns."""

    names: tuple[str, ...] = ()
    rows: int = 0
    total: int = 0

    def plus(self, batch: pa.RecordBatch) -> RowSum:
        names = self.names or hashed_names(batch.schema)
        return RowSum(names=names, rows=self.rows + batch.num_rows, total=(self.total + sum_rows(batch, names)) % SUM)
