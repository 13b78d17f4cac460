# SPDX-License-Identifier: Apache-2.0
"""Partitions by time: which there should be now and which have expired. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo

from lakeward.config.options import TimeUnit
from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.log.logoptions import AutoPartition
from lakeward.model import PartitionUnit, partition_values

_SPELLING = {
    TimeUnit.YEAR: "yyyy, such as 2026",
    TimeUnit.QUARTER: "yyyyQ, such as 20264",
    TimeUnit.MONTH: "yyyyMM, such as 202611",
    TimeUnit.DAY: "yyyyMMdd, such as 20261115",
    TimeUnit.HOUR: "yyyyMMddHH, such as 2026111523",
}


def number_of(unit: TimeUnit, value: str) -> int:
    """The unit's number since year 0, so that neighbours differ by one. Raises ValueError for another spelling."""
    if (
        not re.fullmatch(r"\d+", value)
        or len(value) != {"year": 4, "quarter": 5, "month": 6, "day": 8, "hour": 10}[unit]
    ):
        raise ValueError(value)
    year = int(value[:4])
    match unit:
        case TimeUnit.YEAR:
            return year
        case TimeUnit.QUARTER:
            return year * 4 + _within(int(value[4]), 4) - 1
        case TimeUnit.MONTH:
            return year * 12 + _within(int(value[4:]), 12) - 1
        case TimeUnit.DAY:
            return datetime.strptime(value, "%Y%m%d").toordinal()
    return datetime.strptime(value[:8], "%Y%m%d").toordinal() * 24 + _within(int(value[8:]) + 1, 24) - 1


def value_of(unit: TimeUnit, number: int) -> str:
    match unit:
        case TimeUnit.YEAR:
            return f"{number:04d}"
        case TimeUnit.QUARTER:
            return f"{number // 4:04d}{number % 4 + 1}"
        case TimeUnit.MONTH:
            return f"{number // 12:04d}{number % 12 + 1:02d}"
        case TimeUnit.DAY:
            return datetime.fromordinal(number).strftime("%Y%m%d")
    return datetime.fromordinal(number // 24).strftime("%Y%m%d") + f"{number % 24:02d}"


def number_now(auto: AutoPartition, now_ms: int) -> int:
    now = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(ZoneInfo(auto.time_zone))
    if auto.by_time:
        unit = PartitionUnit(auto.unit)
        return unit.number(now.strftime("%Y-%m-%d-%H")[: len(unit.example)])
    spelled = {"year": "%Y", "month": "%Y%m", "day": "%Y%m%d", "hour": "%Y%m%d%H"}
    if auto.unit is TimeUnit.QUARTER:
        return now.year * 4 + (now.month - 1) // 3
    return number_of(auto.unit, now.strftime(spelled[auto.unit]))


def check_time(auto: AutoPartition, table: str, name: str) -> int:
    """The number of a partition's time. Raises `InvalidRequest` when its value is no time of the unit."""
    value = partition_values(name)[auto.key]
    if auto.by_time:
        return PartitionUnit(auto.unit).number(value)
    try:
        return number_of(auto.unit, value)
    except ValueError:
        raise InvalidRequest(
            what=f"partition {name} of {table}", reason=f"{value!r} is not {_SPELLING[auto.unit]}"
        ) from None


def is_expired(auto: AutoPartition, table: str, name: str, now_ms: int) -> bool:
    """Older than the kept ones: `retention` of them before the present one."""
    return auto.retention > 0 and check_time(auto, table, name) < number_now(auto, now_ms) - auto.retention


def plan_precreate(auto: AutoPartition, key_count: int, existing: Collection[str], now_ms: int) -> list[str]:
    """Partitions to create: the present one and `precreate - 1` ahead. None for tables with other partition keys, whose
    values cannot be known."""
    if key_count != 1:
        return []
    now = number_now(auto, now_ms)
    text = PartitionUnit(auto.unit).text if auto.by_time else partial(value_of, auto.unit)
    return [n for n in (text(now + i) for i in range(auto.precreate)) if n not in existing]


def _within(number: int, most: int) -> int:
    if not 1 <= number <= most:
        raise ValueError(number)
    return number
