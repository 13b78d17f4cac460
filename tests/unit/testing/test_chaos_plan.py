# SPDX-License-Identifier: Apache-2.0
"""The lab's plan and records: same seed, same faults; every step comes; what a read may show."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakeward.model import Bucket, OffsetMap
from lakeward_testing.chaos.plan import ACTIONS, COMPACT_STEPS, JOB_STEPS, SERVER_STEPS, FaultKind, plan_faults
from lakeward_testing.chaos.producer import value_of
from lakeward_testing.chaos.reader import check_keys, check_log, check_offsets
from lakeward_testing.chaos.record import ACKED, DOUBTED, TRIED, Change, Record, RecordWriter, allowed_versions


def test_the_same_seed_gives_the_same_faults() -> None:
    assert plan_faults(7, 120) == plan_faults(7, 120)
    assert plan_faults(7, 120) != plan_faults(8, 120)


def test_a_long_plan_has_every_kind_and_every_step_with_every_action() -> None:
    planned = plan_faults(1, 7200)
    assert {f.kind for f in planned} == set(FaultKind)
    hit = {(f.point, f.action) for f in planned if f.kind is FaultKind.STEP}
    assert {(p, a) for p in (*JOB_STEPS, *COMPACT_STEPS) for a in ACTIONS} <= hit
    assert set(SERVER_STEPS) <= {p for p, _ in hit}


def test_only_the_kinds_that_were_asked_for() -> None:
    assert {f.kind for f in plan_faults(1, 300, [FaultKind.CLOCK])} == {FaultKind.CLOCK}


def recorded(path: Path, *states: tuple[str, int, tuple[int, ...]]) -> Record:
    writer = RecordWriter(path)
    for state, number, rows in states:
        writer.note(state, number, **({"kind": "append", "rows": list(rows)} if state == TRIED else {}))
    writer.close()
    with path.open("a") as half:
        half.write('{"state": "tri')
    return Record.load(path)


def test_a_read_of_the_log_is_held_against_the_record(tmp_path: Path) -> None:
    record = recorded(tmp_path / "r", (TRIED, 0, (0, 1)), (ACKED, 0, ()), (TRIED, 1, (2,)), (DOUBTED, 1, ()))

    def rows(*numbers: int) -> pa.Table:
        return pa.table(
            {"producer": [0] * len(numbers), "row": list(numbers), "value": [value_of(0, n) for n in numbers]}
        )

    assert check_log(rows(0, 1), {0: record}, {0: record}) == []
    assert check_log(rows(0, 1, 2), {0: record}, {0: record}) == []
    assert "missing" in check_log(rows(0), {0: record}, {0: record})[0]
    assert "more than once" in check_log(rows(0, 1, 1), {0: record}, {0: record})[0]
    assert "never written" in check_log(rows(0, 1, 9), {0: record}, {0: record})[0]
    altered = rows(0, 1).set_column(2, "value", pa.array(["x", value_of(0, 1)]))
    assert "another value" in check_log(altered, {0: record}, {0: record})[0]


def test_offsets_of_half_a_round_are_seen() -> None:
    def rows(*offsets: int) -> pa.Table:
        return pa.table({"__bucket": pa.array([0] * len(offsets), pa.int32()), "__offset": list(offsets)})

    ends = OffsetMap({Bucket("", 0): 3})
    assert check_offsets(rows(2, 0, 1), ends) == []
    assert check_offsets(rows(0, 2), ends)
    assert check_offsets(rows(0, 1, 2, 3), ends)


def test_a_key_shows_its_newest_acknowledged_change_or_a_later_one() -> None:
    changes = [Change(0, "upsert", (1,)), Change(4, "delete", (1,)), Change(6, "upsert", (1,))]
    assert allowed_versions(changes, {0}) == {0, None, 6}
    assert allowed_versions(changes, {0, 4}) == {None, 6}
    assert allowed_versions(changes, {0, 4, 6}) == {6}
    record = Record(changes=changes[:2], acked={0: 0.0, 4: 0.0})
    gone = pa.table(
        {
            "part": pa.array([], pa.string()),
            "id": pa.array([], pa.int64()),
            "version": pa.array([], pa.int32()),
            "value": [],
        }
    )
    assert check_keys(gone, {0: record}, {0: record}) == []
    there = pa.table({"part": ["west"], "id": [1], "version": [0], "value": [value_of(0, 1, 0)]})
    assert check_keys(there, {0: record}, {0: record})
