# SPDX-License-Identifier: Apache-2.0
"""One key of a table's partitions: a column, or the year, month, day or hour of one. Values go to the texts that name
partitions, and a text goes back to what is true of its rows.

The time of a TIMESTAMP_LTZ is UTC's, of a TIMESTAMP the one that it shows: both as in Iceberg's transforms.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.errors import InvalidRequest
from lakeward.model import types as model

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

_CALL = re.compile(r"(year|month|day|hour)s?\s*\(\s*(`?)(.+?)\2\s*\)", re.IGNORECASE)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_LONG = range(-(2**63), 2**63)


class PartitionUnit(StrEnum):
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"

    @property
    def dtype(self) -> np.dtype[Any]:
        import numpy as np

        return np.dtype({"year": "M8[Y]", "month": "M8[M]", "day": "M8[D]", "hour": "M8[h]"}[self])

    @property
    def example(self) -> str:
        return {"year": "2026", "month": "2026-11", "day": "2026-11-18", "hour": "2026-11-18-05"}[self]

    def numbers(self, values: pa.Array) -> np.ndarray:
        """Numbers of the periods that these dates or timestamps (no nulls) fall into; period 0 contains the start of
        1970."""
        import numpy as np
        import pyarrow as pa

        is_date = pa.types.is_date(values.type)
        ticks = values.cast(pa.int32() if is_date else pa.int64()).to_numpy(zero_copy_only=False).astype(np.int64)
        per_hour = 0 if is_date else 3600 * _PER_SECOND[values.type.unit]
        if self is PartitionUnit.HOUR:
            hours: np.ndarray = ticks // per_hour
            return hours
        days = ticks if is_date else ticks // (24 * per_hour)  # by NumPy's own cast the first days of a type overflow
        numbers: np.ndarray = days.astype("M8[D]").astype(self.dtype).astype(np.int64)
        return numbers

    def text(self, number: int) -> str:
        """Name of the year, month, day or hour with this number."""
        import numpy as np

        return str(np.array(number, np.int64).astype(self.dtype)).replace("T", "-")

    def number(self, text: str) -> int:
        """The inverse. Raises `InvalidRequest` for what is no such text; years are 0001 to 9999."""
        import numpy as np

        if re.fullmatch(re.sub(r"\d", r"\\d", self.example), text):
            at_hour = text[:10] + "T" + text[11:] if self is PartitionUnit.HOUR else text
            try:
                number = int(np.array(at_hour, self.dtype).astype(np.int64))
            except ValueError:
                number = 0
            if text >= "0001" and self.text(number) == text:
                return number
        reason = f"it is no {self} of the years 0001 to 9999, such as {self.example}"
        raise InvalidRequest(what=f"partition value {text!r}", reason=reason)


@dataclass(frozen=True)
class PartitionKey:
    """`unit` None: the column's own value."""

    column: str
    unit: PartitionUnit | None = None

    @classmethod
    def parse(cls, text: str, columns: Collection[str]) -> PartitionKey:
        """As people write it: `region`, `day(ts)`, `days(ts)`. A column of that name wins."""
        call = _CALL.fullmatch(text)
        if text in columns or call is None:
            return cls(text)
        return cls(call[3], PartitionUnit(call[1].lower()))

    def __str__(self) -> str:
        return self.column if self.unit is None else f"{self.unit}({self.column})"

    def why_not(self, kind: model.DataType) -> str | None:
        """In words, why a column of this type has no such time."""
        if self.unit is None or isinstance(kind, model.TimestampType | model.TimestampLtzType):
            return None
        if not isinstance(kind, model.DateType):
            return f"{self.unit}() is of a DATE, TIMESTAMP or TIMESTAMP_LTZ column, and {self.column} is {kind}"
        return "a DATE has no hours: say day, month or year" if self.unit is PartitionUnit.HOUR else None

    def texts(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Null for a null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.unit is None:
            return values if pa.types.is_string(values.type) else values.cast(pa.string())
        moments = values.combine_chunks()
        encoded = pa.array(self.unit.numbers(moments.drop_null()), pa.int64()).dictionary_encode()
        names = pa.array([self.unit.text(n) for n in encoded.dictionary.to_pylist()], pa.string())
        texts = names.take(encoded.indices)
        if moments.null_count:
            places = pc.cumulative_sum(pc.cast(moments.is_valid(), pa.int64()))
            texts = texts.take(pc.if_else(moments.is_valid(), pc.subtract(places, 1), pa.scalar(None, pa.int64())))
        return pa.chunked_array([texts])

    def check(self, text: str) -> None:
        """Raises `InvalidRequest` for a text that is no value of a time."""
        if self.unit is not None:
            self.unit.number(text)

    def fact(self, text: str, kind: pa.DataType) -> pc.Expression:
        """Condition on the column that holds for every row of a partition."""
        import pyarrow as pa
        import pyarrow.compute as pc

        field = pc.field(self.column)
        if self.unit is None:
            return field == pa.scalar(text).cast(kind)
        first, end = self._bounds(text, kind)
        lower_bound = pc.scalar(True) if first is None else field >= first
        return lower_bound if end is None else lower_bound & (field < end)

    def is_in(self, text: str, values: pa.Array) -> np.ndarray:
        """Which values lie in a partition."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.unit is None:
            same = pc.equal(values, pa.scalar(text).cast(values.type))
        else:
            first, end = self._bounds(text, values.type)
            same = pc.is_valid(values) if first is None else pc.greater_equal(values, first)
            same = same if end is None else pc.and_(same, pc.less(values, end))
        return np.asarray(same.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)

    def _bounds(self, text: str, kind: pa.DataType) -> tuple[pa.Scalar | None, pa.Scalar | None]:
        """The first value and the one after the last; None where the type has no such value."""
        import numpy as np
        import pyarrow as pa

        assert self.unit is not None
        number = self.unit.number(text)
        ends = np.array([number, number + 1], np.int64).astype(self.unit.dtype)
        if pa.types.is_date(kind):
            days = ends.astype("datetime64[D]").astype(np.int64).tolist()
            return pa.scalar(days[0], kind), pa.scalar(days[1], kind)
        first, end = (s * _PER_SECOND[kind.unit] for s in ends.astype("datetime64[s]").astype(np.int64).tolist())
        return tuple(pa.scalar(at, kind) if at in _LONG else None for at in (first, end))  # type: ignore[return-value]
