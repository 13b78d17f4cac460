# SPDX-License-Identifier: Apache-2.0
"""Decimals from text and from Python values. Arrow's own conversions check neither digits nor decimal places: of texts
that do not fit they make other numbers without an error, and `1e-999999999` ends the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

MOST_DIGITS = 38
"""Largest precision, and so scale, of a DECIMAL."""

_LONGEST = 2_000
"""Characters of a number: a double written out has about 1,100."""

_SHAPE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,18})?")


def parse_number(text: str) -> Decimal:
    """For `json`: a number with a point or an exponent, of any type. Raises `ValueError`."""
    if len(text) > _LONGEST:
        raise ValueError(f"a number of {len(text)} characters is too long")
    return Decimal(text)


def parse_decimal(text: str) -> Decimal:
    """Raises `ValueError`."""
    if _SHAPE.fullmatch(text) is None:
        raise ValueError(f"{text[:60]!r} is not a decimal number")
    return check_decimal(parse_number(text))


def check_decimal(value: Decimal) -> Decimal:
    """Returns the value. Raises `ValueError` for one that Arrow would not convert correctly."""
    _, digits, exponent = value.as_tuple()
    count = max(len(digits), -exponent) if isinstance(exponent, int) else 0
    if count > MOST_DIGITS:
        raise ValueError(f"{str(value)[:60]} has {count} digits, at most {MOST_DIGITS} are allowed")
    return value


def decimals_in(value: Any) -> Iterator[Decimal]:
    """The decimals of a Python value, those inside lists, maps and structs too."""
    if isinstance(value, Decimal):
        yield value
    elif isinstance(value, dict):
        for part in value.items():
            yield from decimals_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from decimals_in(part)


def cast_column(column: pa.Array | pa.ChunkedArray, kind: pa.DataType, *, safe: bool = True) -> Any:
    """Arrow's cast, but for text that becomes a decimal. Raises `pa.ArrowInvalid`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_decimal(kind) and _is_text(column.type)):
        return column.cast(kind, safe=safe)
    texts = column.cast(pa.string())
    fitting = rf"^[+-]?0*[0-9]{{0,{kind.precision - kind.scale}}}(\.[0-9]{{0,{max(0, kind.scale)}}})?$"
    if pc.all(pc.match_substring_regex(texts, fitting)).as_py() is not False:
        return texts.cast(kind)
    try:
        values = pa.array([None if text is None else parse_decimal(text) for text in texts.to_pylist()], kind)
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
    return pa.chunked_array([values]) if isinstance(column, pa.ChunkedArray) else values


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(is_string or is_bytes)
