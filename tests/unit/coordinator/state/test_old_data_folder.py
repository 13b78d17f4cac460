# SPDX-License-Identifier: Apache-2.0
"""A data folder of 87cf5f3, from before tables had sides, is opened and goes on."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.coordinator.state.schema import SIDE_TABLES
from lakeward.coordinator.state.statestore import StateStore
from lakeward.errors import Superseded
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.model import DEFAULT_SIDE, TIER, OffsetMap, RoundId, SideId, SideName, SnapshotId, TablePath
from lakeward.model.side import COMPACT
from lakeward.protocol.codec import encode
from lakeward.protocol.heartbeat import HeartbeatRequest, Progress, TableFailed, TableFinished, TableInWork, Verdict
from lakeward.protocol.tables import AlterTable
from lakeward.spi import CommitProperties, LakeStorage, Precondition, load_lake
from lakeward_testing.clock import ManualClock
from tests.kit.inprocess import JOB, InProcessLakeward

FIXTURE = Path(__file__).parents[3] / "fixtures" / "data-folder-87cf5f3"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text())
LOG, KEYED = TablePath("shop", "orders"), TablePath("shop", "stock")
HELD = EXPECTED["held"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(FIXTURE, tmp_path / "data")


@pytest.fixture
def parts(folder: Path) -> Iterator[InProcessLakeward]:
    lake = load_lake("memory", {"name": str(folder)})
    clock = ManualClock()
    clock.advance(10)
    assert isinstance(lake, MemoryLakeStorage)
    opened = InProcessLakeward(folder, lake, clock)
    for path in (LOG, KEYED):
        fill_lake(lake, opened, path)
    assert opened.coordinator.lakes.read_unseen() == 2
    yield opened
    opened.close()


def test_a_table_of_an_old_folder_gets_a_second_side(folder: Path) -> None:
    lake = load_lake("memory", {"name": str(folder)})
    named = {"finance": load_lake("memory", {"name": f"{folder}/finance"})}
    clock = ManualClock()
    clock.advance(10)
    parts = InProcessLakeward(folder, lake, clock, named=named)
    for path in (LOG, KEYED):
        fill_lake(lake, parts, path)
    parts.coordinator.lakes.read_unseen()
    before = {path: encode(parts.coordinator.views.ledger_page(path))["entries"] for path in (LOG, KEYED)}
    lakes = AlterTable(properties={"table.datalake.lakes": "default, finance"})
    for path in (LOG, KEYED):
        parts.federation.alter(path, lakes)
        parts.tier(str(path), SideName("finance"))
        assert parts.coordinator.sides(path) == [DEFAULT_SIDE, SideName("finance")]
        reached = parts.coordinator.committed(path, SideName("finance")).offsets
        assert not list(parts.coordinator.committed(path, DEFAULT_SIDE).offsets.regressions(reached))
        assert encode(parts.coordinator.views.ledger_page(path, name=DEFAULT_SIDE))["entries"] == before[path]
    parts.restart()
    assert parts.coordinator.sides(LOG) == [DEFAULT_SIDE, SideName("finance")]
    parts.close()


def fill_lake(lake: LakeStorage, parts: InProcessLakeward, path: TablePath) -> None:
    """What the lake held: it ended with the process that wrote the folder."""
    table, held = parts.store.load_table(path), EXPECTED["tables"][str(path)]["lake"]
    lake.catalog().create(table, adopt=False)
    base, committer = lake.open_reader(table).load_base(), lake.open_committer(table)
    offsets = OffsetMap.from_json(held["offsets"])
    properties = CommitProperties(
        round_id=RoundId(held["token"]), epoch=held["epoch"], job=JOB, offsets=offsets, generation=held["generation"]
    )
    committable = committer.prepare([], {}, base, properties)
    committer.commit(
        committable, Precondition(table_id=table.table_id, token=None, starts=dict.fromkeys(offsets, None))
    )


def test_what_was_known_is_known(parts: InProcessLakeward) -> None:
    coordinator = parts.coordinator
    for path in (LOG, KEYED):
        old, status = EXPECTED["tables"][str(path)], encode(coordinator.views.table(path))
        assert encode(coordinator.views.ledger_page(path))["entries"] == [
            {**entry, "side": str(DEFAULT_SIDE)} for entry in old["ledger"]["entries"]
        ]
        rounds = encode(coordinator.views.rounds(path))
        then = [
            {**r, "side": str(DEFAULT_SIDE), "kind": TIER, "phases": {**r["phases"], "cpu_s": 0.0}}
            for r in old["rounds"]
        ]
        assert [{k: now[k] for k in was} for now, was in zip(rounds, then, strict=True)] == then
        same = ("table_id", "state", "epoch", "last_round", "failures", "failures_in_a_row", "last_duration_ms", "job")
        assert {k: status[k] for k in same} == {k: old["status"][k] for k in same}
        assert status["token"] == old["lake"]["token"]
        for entry in old["ledger"]["entries"]:
            assert coordinator.knows_round(entry["table_id"], entry["round_id"])


def test_intents_read_leases_and_marks_came_along(parts: InProcessLakeward) -> None:
    coordinator, side = parts.coordinator, parts.coordinator.board.find(LOG)
    (intent,) = [i for i in coordinator.intents.open_intents(side.table_id) if i.round_id == "round-in-work"]
    assert (intent.kind, intent.side, intent.prefix) == (TIER, DEFAULT_SIDE, "p")
    (mark,) = coordinator.leases.marked(side.id)
    assert (mark.snapshot.snapshot_id, mark.snapshot.trace, mark.token) == (SnapshotId("7"), "here", "tok")
    assert coordinator.leases.count() == 2


def beat(parts: InProcessLakeward, **more: Any) -> Any:
    instance = more.pop("instance", EXPECTED["instance"])
    return parts.coordinator.heartbeat(HeartbeatRequest(job=JOB, instance=instance, slots=2, **more))


def test_the_job_of_then_goes_on_with_its_lease(parts: InProcessLakeward) -> None:
    item = TableInWork(
        table_id=HELD["table_id"],
        epoch=HELD["epoch"],
        round_id=RoundId("round-in-work"),
        progress=Progress(phase="write"),
    )
    (verdict,) = beat(parts, tiering=(item,)).verdicts
    assert verdict.verdict is Verdict.OK, "its lease stands, with a full limit after the restart"
    done = TableFinished(table_id=HELD["table_id"], epoch=HELD["epoch"], round_id=RoundId("round-in-work"))
    (verdict,) = beat(parts, finished=(done,)).verdicts
    assert verdict.verdict is Verdict.OK


def test_another_instance_takes_over_and_rounds_go_on(parts: InProcessLakeward) -> None:
    """Its rows reach the lake, under an epoch above the one that was handed out."""
    for path in (LOG, KEYED):
        before = EXPECTED["tables"][str(path)]["status"]["epoch"]
        rows = parts.read(str(path)).to_table().to_pylist()
        assert [r["text"] for r in rows if r["id"] == 100] == ["waits"]
        (end,) = parts.tier(str(path))
        assert not isinstance(end, TableFailed)
        status, ledger = parts.coordinator.views.table(path), parts.coordinator.ledger(path)
        assert status.epoch > before
        assert [(e.range.start, e.range.stop) for e in ledger] == [(0, 10), (10, 20), (20, 30), (30, 31)]
        assert [e.epoch for e in ledger] == sorted({e.epoch for e in ledger}), "none comes twice"
    item = TableInWork(table_id=HELD["table_id"], epoch=HELD["epoch"], round_id=RoundId("round-in-work"))
    with pytest.raises(Superseded):
        beat(parts, tiering=(item,))


def test_a_copy_is_made_once_and_a_crash_leaves_the_old_file(folder: Path) -> None:
    """The copy is of version 1; a migration that fails halfway changes nothing, and the next start does it."""
    path = folder / "coordinator.db"
    with sqlite3.connect(path) as old:
        old.execute("alter table read_leases rename to elsewhere")
    with pytest.raises(sqlite3.OperationalError, match="read_leases"):
        StateStore.open(path)
    copy = folder / "coordinator.db.format-1"
    written = copy.stat().st_mtime_ns
    with sqlite3.connect(path) as old:
        assert old.execute("select count(*) from tables").fetchone() == (2,)
        old.execute("alter table elsewhere rename to read_leases")
    store = StateStore.open(path)
    assert {s.path for s in store.load_sides().values()} == {str(LOG), str(KEYED)}
    store.close()
    assert copy.stat().st_mtime_ns == written, "made once"
    with sqlite3.connect(path) as new:
        names = {name for (name,) in new.execute("select name from sqlite_master where type = 'table'")}
    assert set(SIDE_TABLES) <= names
    assert not {n for n in names if n.startswith("old_") or n == "tables"}


def test_kinds_of_intents_have_todays_names(folder: Path) -> None:
    path = folder / "coordinator.db"
    with sqlite3.connect(path) as old:
        old.execute("update intents set body = json_set(body, '$.kind', 'compaction')")
    store = StateStore.open(path)
    kinds = {i.kind for i in store.intents.load(SideId(HELD["table_id"]))}
    store.close()
    assert kinds == {COMPACT}
