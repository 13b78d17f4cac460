# SPDX-License-Identifier: Apache-2.0
"""The work of a read grows with a table's columns, not with their square: 5,000 columns kept a reader's sample from its
answer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

from lakeward.model import Column, Int64Type, Schema
from lakeward.spi import load_lake
from tests.kit.inprocess import InProcessLakeward


def calls_of_a_read(folder: Path, count: int) -> int:
    world = InProcessLakeward(folder, load_lake("memory", {"name": str(folder)}))
    try:
        world.create("db.t", Schema(columns=tuple(Column(name=f"c{n}", type=Int64Type()) for n in range(count))))
        world.append("db.t", [{f"c{n}": n for n in range(count)}])
        calls = 0

        def count_call(_frame: FrameType, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count_call)
        try:
            with world.read("db.t") as result:
                assert sum(batch.num_rows for batch in result) == 1
        finally:
            sys.setprofile(None)
        return calls
    finally:
        world.close()


def test_twice_the_columns_are_twice_the_work(tmp_path: Path) -> None:
    few, more = (calls_of_a_read(tmp_path / str(n), n) for n in (200, 400))
    assert more < 2.5 * few
