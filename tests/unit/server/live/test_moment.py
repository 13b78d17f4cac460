# SPDX-License-Identifier: Apache-2.0
"""Which moment a load gets, and how long one waits for a write token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, repeat

import pytest

from lakeward.errors import ReadTooFarAhead
from lakeward.model import (
    Bucket,
    Column,
    CutEnds,
    OffsetMap,
    Schema,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    parse_type,
)
from lakeward.protocol.readplan import WriteToken
from lakeward.server.live.moment import Moments
from lakeward_testing.clock import ManualClock

BUCKET = Bucket("", 0)
SCHEMA = Schema(columns=(Column(name="id", type=parse_type("BIGINT")),))
TABLE = TableInfo(path=TablePath("db", "t"), table_id=TableId("7"), descriptor=TableDescriptor(schema=SCHEMA))


def moments(*ends: int) -> tuple[Moments, list[int]]:
    """Of a log that ends there at each look, and stays at the last one; and the looks."""
    log: Iterator[int] = chain(ends, repeat(ends[-1]))
    looks: list[int] = []

    def freeze(tables: object) -> Mapping[TableId, CutEnds]:
        looks.append(next(log))
        return {TABLE.table_id: CutEnds(ends=OffsetMap({BUCKET: looks[-1]}))}

    return Moments(freeze, ManualClock(), 1.0), looks


def token(offset: int) -> WriteToken:
    return WriteToken(table_id=TABLE.table_id, offsets=OffsetMap({BUCKET: offset}))


def test_a_load_waits_until_the_token_is_covered() -> None:
    shared, looks = moments(3, 3, 5)
    assert shared.take(TABLE).ends[TABLE.table_id].ends[BUCKET] == 3
    assert shared.take(TABLE, token(3)).ends[TABLE.table_id].ends[BUCKET] == 3, "the moment that is held"
    assert shared.take(TABLE, token(5)).ends[TABLE.table_id].ends[BUCKET] == 5
    assert looks == [3, 3, 5]


def test_a_token_that_no_log_reaches_is_refused_after_a_while() -> None:
    shared, looks = moments(3)
    with pytest.raises(ReadTooFarAhead, match="offset 4 was asked for and the log ends at 3"):
        shared.take(TABLE, token(4))
    assert len(looks) == 5
