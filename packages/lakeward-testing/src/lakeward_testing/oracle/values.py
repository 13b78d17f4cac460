# SPDX-License-Identifier: Apache-2.0
"""Values of every column type, and how two values are compared: floats by their bits, at every depth."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

Make = Callable[[Random], Any]

ODD_DOUBLES = (float("nan"), -0.0, 0.0, float("inf"), -float("inf"), 5e-324, 1.7976931348623157e308)
TEXTS = ("", " ", "NULL", 'a,b\n"c"', "größer 漢字", "x" * 300)
EPOCH = datetime(1970, 1, 1)


def _double(chance: Random) -> float:
    return chance.choice(ODD_DOUBLES) if chance.random() < 0.4 else chance.uniform(-1e9, 1e9)


def _single(chance: Random) -> float:
    """A double that 32 bits hold."""
    odd = (float("nan"), -0.0, float("inf"), 1e-45)
    value = chance.choice(odd) if chance.random() < 0.4 else chance.uniform(-1e9, 1e9)
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


def _whole(bits: int) -> Make:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return lambda chance: chance.choice((low, high, 0)) if chance.random() < 0.3 else chance.randint(low, high)


def _decimal(digits: int, scale: int) -> Make:
    """Spelled, not computed: Python's own arithmetic rounds to 28 digits."""
    most = 10**digits - 1
    return lambda chance: Decimal(f"{chance.choice((most, -most, 0, chance.randint(-most, most)))}E-{scale}")


def _moment(chance: Random) -> datetime:
    return EPOCH + timedelta(microseconds=chance.randint(-(10**15), 4 * 10**15))


def _some(inner: Make) -> Make:
    return lambda chance: [maybe(inner, chance) for _ in range(chance.randrange(4))]


def _pairs(chance: Random) -> list[tuple[str, Any]]:
    return [(name, maybe(_double, chance)) for name in "abc"[: chance.randrange(4)]]


TYPES: Mapping[str, Make] = {
    "BOOLEAN": lambda chance: chance.random() < 0.5,
    "TINYINT": _whole(8),
    "SMALLINT": _whole(16),
    "INT": _whole(32),
    "BIGINT": _whole(64),
    "FLOAT": _single,
    "DOUBLE": _double,
    "DECIMAL(9, 2)": _decimal(9, 2),
    "DECIMAL(38, 10)": _decimal(38, 10),
    "CHAR(3)": lambda chance: chance.choice(("abc", "ü", "漢字z")),
    "STRING": lambda chance: chance.choice(TEXTS) if chance.random() < 0.5 else str(chance.random()),
    "BYTES": lambda chance: chance.randbytes(chance.randrange(9)),
    "DATE": lambda chance: date(1970, 1, 1) + timedelta(days=chance.randint(-40_000, 40_000)),
    "TIME(3)": lambda chance: time(chance.randrange(24), chance.randrange(60), 59, 1000 * chance.randrange(1000)),
    "TIMESTAMP(6)": _moment,
    "TIMESTAMP_LTZ(6)": lambda chance: _moment(chance).replace(tzinfo=UTC),
    "ARRAY<DOUBLE>": _some(_double),
    "ARRAY<ARRAY<INT>>": _some(_some(_whole(32))),
    "MAP<STRING NOT NULL, DOUBLE>": _pairs,
    "ROW<x INT, y ROW<z DOUBLE, w STRING>>": lambda chance: {
        "x": maybe(_whole(32), chance),
        "y": {"z": maybe(_double, chance), "w": chance.choice(TEXTS)},
    },
    "ROW<m DECIMAL(20, 3), l ARRAY<FLOAT>>": lambda chance: {
        "m": maybe(_decimal(20, 3), chance),
        "l": _some(_single)(chance),
    },
    "ROW<n1 INT NOT NULL, n2 STRING>": lambda chance: {
        "n1": _whole(32)(chance),
        "n2": chance.choice((None, *TEXTS)),
    },
}
"""No array of rows: PyIceberg reads a null one as an empty one, and so would write it anew where it plays the other
engine."""


def maybe(make: Make, chance: Random) -> Any:
    return None if chance.random() < 0.15 else make(chance)


def spelled(value: Any) -> Any:
    """A value that is equal to another's exactly when both are the same to the bit, and that can be sorted."""
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack(">d", value).hex()
    if isinstance(value, dict):
        if list(value) == ["key", "value"]:  # a pair of a map, as some readers give it
            return spelled(value["key"]), spelled(value["value"])
        return tuple((name, spelled(inner)) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return tuple(spelled(inner) for inner in value)
    return value.isoformat() if isinstance(value, datetime) else repr(value)
