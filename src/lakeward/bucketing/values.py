# SPDX-License-Identifier: Apache-2.0
"""A block of one key column as numpy values, the way the bucket functions want them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeward.bucketing.keybytes import Bytes, KeyBytes
from lakeward.errors import InvalidRequest
from lakeward.model import (
    BinaryType,
    BytesType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    StringType,
    TimestampLtzType,
    TimestampType,
    TimeType,
)

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

COMPACT_DECIMAL_DIGITS = 18
"""Up to so many digits an unscaled value fits into eight bytes."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, kw_only=True)
class KeyColumn:
    """`values` has the Arrow type that `type` maps to. Nulls read as zero or as an empty string."""

    name: str
    values: pa.Array
    type: DataType
    first_row: int = 0

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def nulls(self) -> Mask | None:
        """Where the column is null; None when it is nowhere."""
        return None if not self.values.null_count else self.values.is_null().to_numpy(zero_copy_only=False)

    def refuse_nulls(self, function: str) -> None:
        if self.nulls is not None:
            self.refuse(int(self.nulls.argmax()), f"null; the {function} bucket function takes no null keys")

    def refuse(self, index: int, reason: str) -> None:
        raise InvalidRequest(what=f"bucket key column {self.name}, row {self.first_row + index}", reason=reason)

    @property
    def is_text(self) -> bool:
        return isinstance(self.type, CharType | StringType)

    @property
    def is_bytes(self) -> bool:
        return isinstance(self.type, BinaryType | BytesType)

    @property
    def is_timestamp(self) -> bool:
        return isinstance(self.type, TimestampType | TimestampLtzType)

    @property
    def is_wide_decimal(self) -> bool:
        return isinstance(self.type, DecimalType) and self.type.precision > COMPACT_DECIMAL_DIGITS

    def numbers(self) -> npt.NDArray[np.generic]:
        """Booleans, integers, floats as they are; dates as days; times in their own unit; timestamps in theirs."""
        plain = self.values
        if isinstance(self.type, DateType):
            plain = plain.view(pa.int32())
        elif isinstance(self.type, TimeType):
            plain = plain.view(pa.int32() if pa.types.is_time32(plain.type) else pa.int64())
        elif self.is_timestamp:
            plain = plain.view(pa.int64())
        if self.nulls is not None:
            plain = plain.fill_null(False if pa.types.is_boolean(plain.type) else 0)
        numbers: npt.NDArray[np.generic] = plain.to_numpy(zero_copy_only=False)
        return numbers

    def longs(self) -> Longs:
        return self.numbers().astype(np.int64, copy=False)

    def time_in(self, unit: str) -> Longs:
        """Time of day in this unit, cut down where the column is finer."""
        return _rescale(self.longs(), self.values.type.unit, unit)

    def micros(self) -> Longs:
        return _rescale(self.longs(), self.values.type.unit, "us")

    def millis_and_nanos(self) -> tuple[Longs, Longs]:
        """A timestamp as milliseconds and the nanoseconds within one; both right before 1970 too."""
        longs, unit = self.longs(), self.values.type.unit
        millis = _rescale(longs, unit, "ms")
        if unit in ("s", "ms"):
            return millis, np.zeros(len(longs), np.int64)
        per_milli = _PER_SECOND[unit] // 1_000
        return millis, (longs - millis * per_milli) * (1_000_000 // per_milli)

    @property
    def has_nanos(self) -> bool:
        """Whether the type is finer than milliseconds."""
        return isinstance(self.type, TimestampType | TimestampLtzType) and self.type.precision > 3

    def limbs(self) -> tuple[Longs, Longs]:
        """A decimal's unscaled value: low and high eight bytes."""
        buffer = self.values.buffers()[1]
        pairs = np.frombuffer(buffer, "<i8").reshape(-1, 2)[self.values.offset : self.values.offset + len(self)]
        if self.nulls is not None:
            pairs = np.where(self.nulls[:, None], 0, pairs)
        return pairs[:, 0], pairs[:, 1]

    def unscaled_bytes(self) -> KeyBytes:
        """A decimal's unscaled value as the shortest big-endian two's complement."""
        low, high = self.limbs()
        matrix = np.stack([high, low], axis=1).astype(">i8").view(np.uint8).reshape(-1, 16)
        return KeyBytes.from_matrix(matrix, _shortest(matrix, high < 0), from_end=True)

    def raw_bytes(self) -> KeyBytes:
        """Text as UTF-8, or bytes, without copying."""
        if isinstance(self.type, BinaryType):
            return self._fixed_bytes(self.type.length)
        _, offsets, data = self.values.buffers()
        bounds = np.frombuffer(offsets, np.int32)[self.values.offset : self.values.offset + len(self) + 1].astype(
            np.int64
        )
        lengths = np.diff(bounds)
        if self.nulls is not None:
            lengths = np.where(self.nulls, 0, lengths)
        first, last = int(bounds[0]), int(bounds[-1])
        return KeyBytes(
            np.frombuffer(data, np.uint8)[first:last] if data else np.zeros(0, np.uint8), bounds[:-1] - first, lengths
        )

    def _fixed_bytes(self, width: int) -> KeyBytes:
        data = np.frombuffer(self.values.buffers()[1], np.uint8)
        starts = (np.arange(len(self), dtype=np.int64) + self.values.offset) * width
        lengths = np.full(len(self), width, np.int64)
        return KeyBytes(data, starts, lengths if self.nulls is None else np.where(self.nulls, 0, lengths))


def _rescale(values: Longs, have: str, want: str) -> Longs:
    """Floors towards the past, as Java's floorDiv does."""
    a, b = _PER_SECOND[have], _PER_SECOND[want]
    return values * (b // a) if b >= a else values // (a // b)


def _shortest(matrix: Bytes, negative: Mask) -> npt.NDArray[np.int64]:
    """How many bytes each row of a big-endian matrix needs, its sign bit included."""
    folded = matrix ^ np.where(negative, 0xFF, 0).astype(np.uint8)[:, None]
    first = (folded != 0).argmax(axis=1)
    top = folded[np.arange(len(folded)), first]
    lengths: npt.NDArray[np.int64] = np.where(top == 0, 1, matrix.shape[1] - first + (top >> 7))
    return lengths
