# SPDX-License-Identifier: Apache-2.0
"""Values as Java's `toString` spells them: what Hudi's record keys are made of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lakeward.bucketing.values import KeyColumn
from lakeward.model import (
    CharType,
    DataType,
    DecimalType,
    Float32Type,
    Float64Type,
    StringType,
    TimestampLtzType,
    TimestampType,
)

_SCIENTIFIC_BELOW, _SCIENTIFIC_FROM = -3, 7
"""Java writes a float plainly from 10^-3 up to, not including, 10^7."""

_DAY_MS = 86_400_000


def float_text(value: np.float32 | np.float64) -> str:
    """The shortest digits that read back the same, as Java 19 and later write them."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if np.signbit(value) else ""
    if value == 0:
        return f"{sign}0.0"
    digits, power = _shortest_digits(value)
    if _SCIENTIFIC_BELOW <= power < _SCIENTIFIC_FROM:
        return sign + _plain(digits, power)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def _shortest_digits(value: np.float32 | np.float64) -> tuple[str, int]:
    """Digits and the power of ten of the first. Where one digit would do, Java takes the nearest number of two."""
    mantissa, exponent = np.format_float_scientific(np.abs(value), unique=True, trim="-").split("e")
    if len(mantissa.rstrip(".")) == 1:
        mantissa, exponent = f"{abs(float(value)):.1e}".split("e")
    digits = mantissa.replace(".", "")
    return digits.rstrip("0") or "0", int(exponent)


def date_time_text(millis: int, nanos: int) -> str:
    """As LocalDateTime: seconds are left out when they are zero."""
    day, clock = _day_text(millis), millis % _DAY_MS
    hours, minutes, seconds = clock // 3_600_000, clock // 60_000 % 60, clock // 1_000 % 60
    fraction = clock % 1_000 * 1_000_000 + nanos
    text = f"{day}T{hours:02}:{minutes:02}"
    return text if not seconds and not fraction else f"{text}:{seconds:02}{_fraction(fraction)}"


def instant_text(millis: int, nanos: int) -> str:
    """As Instant: seconds always, and a Z."""
    clock = millis % _DAY_MS
    time = f"{clock // 3_600_000:02}:{clock // 60_000 % 60:02}:{clock // 1_000 % 60:02}"
    return f"{_day_text(millis)}T{time}{_fraction(clock % 1_000 * 1_000_000 + nanos)}Z"


def _plain(digits: str, power: int) -> str:
    if power < 0:
        return f"0.{'0' * (-power - 1)}{digits}"
    whole = digits[: power + 1].ljust(power + 1, "0")
    return f"{whole}.{digits[power + 1 :] or '0'}"


def _fraction(nanos: int) -> str:
    """Three, six or nine digits: as few groups as hold it."""
    if not nanos:
        return ""
    text = f"{nanos:09}"
    return "." + (text[:3] if text[3:] == "000000" else text[:6] if text[6:] == "000" else text)


def _day_text(millis: int) -> str:
    year, month, day = str(np.datetime64(millis // _DAY_MS, "D")).rsplit("-", 2)
    number = int(year)
    sign = "-" if number < 0 else "+" if number > 9999 else ""
    return f"{sign}{abs(number):04}-{month}-{day}"


def _moments(spell: Callable[[int, int], str]) -> Callable[[KeyColumn], list[str]]:
    def texts(column: KeyColumn) -> list[str]:
        millis, nanos = column.millis_and_nanos()
        return [spell(m, n) for m, n in zip(millis.tolist(), nanos.tolist(), strict=True)]

    return texts


def _floats(column: KeyColumn) -> list[str]:
    return [float_text(v) for v in column.numbers()]


def _decimals(column: KeyColumn) -> list[str]:
    return [format(v, "f") for v in column.values.to_pylist()]


def _texts(column: KeyColumn) -> list[str]:
    texts: list[str] = column.values.to_pylist()
    return texts


TEXT_OF: dict[type[DataType], Callable[[KeyColumn], list[str]]] = {
    CharType: _texts,
    StringType: _texts,
    DecimalType: _decimals,
    Float32Type: _floats,
    Float64Type: _floats,
    TimestampType: _moments(date_time_text),
    TimestampLtzType: _moments(instant_text),
}
