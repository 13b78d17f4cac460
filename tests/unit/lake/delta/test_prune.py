# SPDX-License-Identifier: Apache-2.0
"""A filter leaves files out by partition values and bounds: those are never opened."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeward.lake.delta.plugin import DeltaLakeStorage
from lakeward.model import Bucket
from lakeward_testing.deltaforeign import DeltaForeignEngine
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "amount": "DOUBLE", "day": "DATE NOT NULL"}
FIRST, SECOND = dt.date(2024, 2, 28), dt.date(2024, 2, 29)


@pytest.fixture
def log(lake: DeltaLakeStorage) -> ScriptedLog:
    """A file of ids 1 to 9 on the first day, one of ids 11 to 19 on the second; the last name of each is null."""
    log = LakeSuite().make_log(lake, columns=COLUMNS, partition_keys=("day",))
    for start, day in ((1, FIRST), (11, SECOND)):
        rows = [
            {"id": i, "name": f"n{i:02d}" if i % 10 < 9 else None, "amount": i / 2} for i in range(start, start + 9)
        ]
        log.append(Bucket(str(day), 0), *({**r, "day": day} for r in rows))
        LakeRound.plan(lake, log).run()
    return log


def ids(lake: DeltaLakeStorage, log: ScriptedLog, filter: pc.Expression) -> list[int]:
    reader = lake.open_reader(log.table)
    head = reader.load_base().head
    assert head is not None
    return [r["id"] for b in reader.scan(head, columns=["id"], filter=filter) for r in b.to_pylist()]


OF_SECOND: dict[str, tuple[pc.Expression, list[int]]] = {
    "a partition value": (pc.field("day") == pa.scalar(SECOND), list(range(11, 20))),
    "a bound": (pc.field("id") > 17, [18, 19]),
    "a text": (pc.field("name") == "n12", [12]),
    "both": ((pc.field("day") != pa.scalar(FIRST)) & (pc.field("id") < 13), [11, 12]),
}


@pytest.mark.parametrize("case", OF_SECOND)
def test_a_file_that_cannot_match_is_not_opened(lake: DeltaLakeStorage, log: ScriptedLog, case: str) -> None:
    first = min(lake.open_reader(log.table).files(lake.log(log.table.path).snapshots()[-1].snapshot_id), key=age)
    Path(first.path).unlink()
    filter, expected = OF_SECOND[case]
    assert ids(lake, log, filter) == expected


def age(file: Any) -> int:
    return int(file.sequence)


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (pc.field("name").is_null(), [9, 19]),
        (pc.field("amount") > 9, [19]),
        (pc.field("id") == 5, [5]),
        (~(pc.field("id") > 2), [1, 2]),
    ],
)
def test_what_may_match_is_read(
    lake: DeltaLakeStorage, log: ScriptedLog, filter: pc.Expression, expected: list[int]
) -> None:
    assert sorted(ids(lake, log, filter)) == expected


def test_files_say_their_age_and_whether_an_engine_may_scan_them(lake: DeltaLakeStorage) -> None:
    """So that a bucket is packed when it is quiet, and Spark's own scan finds bucket and partition in each file."""
    log = LakeSuite().make_log(lake, primary_key=("id",))
    for number in range(3):
        log.upsert(B0, row(number), row(7, f"change {number}"))
        log.upsert(B1, row(100 + number))
        LakeRound.plan(lake, log).run()
    reader = lake.open_reader(log.table)

    def told() -> list[tuple[int, int, list[int], bool]]:
        head = reader.load_base().head
        assert head is not None
        files = [f for f in reader.files(head) if f.bucket is not None]
        facts = [
            (f.bucket.number, f.sequence, [d.sequence for d in f.deletes], f.is_reader_needed)
            for f in files
            if f.bucket is not None
        ]
        return sorted(facts)

    assert told() == [
        (0, 1, [2], False),
        (0, 2, [3], False),
        (0, 3, [], False),
        (1, 1, [], False),
        (1, 2, [], False),
        (1, 3, [], False),
    ]
    LakeRewrite(lake=lake, table=log.table).run()
    assert {(bucket, age, needed) for bucket, age, _, needed in told()} == {(0, 3, False), (1, 3, False)}
    DeltaForeignEngine(lake.log(log.table.path)).optimize()
    assert told() == [(0, 0, [], True), (1, 0, [], True)]
