# SPDX-License-Identifier: Apache-2.0
"""Values as SQL prints them, for people: NULL, 2026-01-31 12:00:00, 1 day 02:03:04."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_SECOND_NS = 1_000_000_000


def spell_value(value: Any) -> str:
    """Any value that Arrow gives as Python's."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat(" ")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return spell_interval(0, value.days, (value.seconds * 1_000_000 + value.microseconds) * 1_000)
        case bytes():
            return f"\\x{value.hex()}"
        case Decimal():
            return f"{value:f}"
        case list() | dict():
            return json.dumps(value, ensure_ascii=False, default=spell_value)
        case tuple() if hasattr(value, "nanoseconds"):  # Arrow's interval of months, days and nanoseconds
            months, days, nanoseconds = value
            return spell_interval(months, days, nanoseconds)
    return str(value)


def spell_interval(months: int, days: int, nanoseconds: int) -> str:
    """`1 year 2 months 3 days 04:05:06`, as DuckDB and PostgreSQL print intervals."""
    sign, years = (-1 if months < 0 else 1), abs(months) // 12
    parts = [_counted(sign * years, "year"), _counted(sign * (abs(months) % 12), "month"), _counted(days, "day")]
    total = abs(nanoseconds)
    seconds, fraction = divmod(total, _SECOND_NS)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    clock += f".{fraction:09}".rstrip("0") if fraction else ""
    if nanoseconds or not any(parts):
        parts.append(f"{'-' if nanoseconds < 0 else ''}{clock}")
    return " ".join(p for p in parts if p)


def _counted(number: int, unit: str) -> str:
    return "" if number == 0 else f"{number} {unit}{'' if abs(number) == 1 else 's'}"
