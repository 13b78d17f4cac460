# SPDX-License-Identifier: Apache-2.0
"""A filter leaves files out by the bounds of their columns, with nulls beside them or without: those are never
opened."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite
from lakeward_testing.scripted_log import ScriptedLog

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "n": "INT", "amount": "DOUBLE"}


@pytest.fixture
def log(lake: IcebergLakeStorage) -> ScriptedLog:
    """A file of ids 1 to 9 and one of ids 11 to 19; the last name and number of each is null."""
    log = LakeSuite().make_log(lake, columns=COLUMNS)
    for start in (1, 11):
        named = [(i, f"n{i:02d}", i) if i % 10 < 9 else (i, None, None) for i in range(start, start + 9)]
        log.append(B0, *({"id": i, "name": name, "n": n, "amount": i / 2} for i, name, n in named))
        LakeRound.plan(lake, log).run()
    return log


def ids(lake: IcebergLakeStorage, log: ScriptedLog, filter: pc.Expression) -> list[int]:
    reader = lake.open_reader(log.table)
    head = reader.load_base().head
    assert head is not None
    return [r["id"] for b in reader.scan(head, columns=["id"], filter=filter) for r in b.to_pylist()]


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (pc.field("id") > 17, [18, 19]),
        (pc.field("name") == "n12", [12]),
        (pc.field("n") >= 17, [17, 18]),
        ((pc.field("n") > 10) & (pc.field("id") < 13), [11, 12]),
    ],
    ids=str,
)
def test_a_file_that_cannot_match_is_not_opened(
    lake: IcebergLakeStorage, log: ScriptedLog, filter: pc.Expression, expected: list[int]
) -> None:
    reader = lake.open_reader(log.table)
    head = reader.load_base().head
    assert head is not None
    first = min(reader.files(head), key=lambda f: f.sequence)
    Path(first.path.removeprefix("file://")).unlink()
    assert ids(lake, log, filter) == expected


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (pc.field("name").is_null(), [9, 19]),
        (pc.field("n").is_null() | (pc.field("n") > 17), [9, 18, 19]),
        (pc.field("amount") > 9, [19]),
        (~(pc.field("id") > 2), [1, 2]),
    ],
    ids=str,
)
def test_what_may_match_is_read(
    lake: IcebergLakeStorage, log: ScriptedLog, filter: pc.Expression, expected: list[int]
) -> None:
    assert sorted(ids(lake, log, filter)) == expected
