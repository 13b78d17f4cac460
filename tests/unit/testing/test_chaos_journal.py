# SPDX-License-Identifier: Apache-2.0
"""What the lab's journal and its quiet spells tell: a lease that was lost, offsets and epochs that went back, tables
that are late.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.lake.delta.plugin import DeltaLakeStorage
from lakeward.model import TablePath
from lakeward.protocol import routes
from lakeward.spi import REWRITE_KEY
from lakeward_testing.chaos.journal import RunJournal
from lakeward_testing.chaos.record import Change, Record
from lakeward_testing.chaos.spells import Spell, Spells
from lakeward_testing.chaos.tables import LOG, PK, watch_commits
from lakeward_testing.deltaforeign import DeltaForeignEngine
from lakeward_testing.httpproxy import ProxyAnswer, ProxyRequest
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from lakeward_testing.waiting import wait_until

TABLE = "t-1"


def hand_out(journal: RunJournal, epoch: int, instance: str = "a", coordinator: int = 1) -> None:
    told = {"coordinator_epoch": coordinator, "tables": [{"table_id": TABLE, "epoch": epoch}]}
    asked = json.dumps({"instance": instance}).encode()
    journal.see(ProxyRequest("POST", routes.HEARTBEAT, {}, asked), ProxyAnswer(200, {}, json.dumps(told).encode()))


def commit(
    journal: RunJournal,
    epoch: int,
    offset: int,
    *,
    number: int,
    round_id: str | None = None,
    status: int | None = 200,
    more: Mapping[str, str] | None = None,
) -> None:
    summary = {
        "lakeward.table-id": TABLE,
        "lakeward.round": round_id or f"r{number}",
        "lakeward.epoch": str(epoch),
        "lakeward.job": "job",
        "fluss-offsets": json.dumps({"offsets": {"": [[0, offset]]}}),
        **(more or {}),
    }
    snapshot: dict[str, Any] = {"snapshot-id": number, "sequence-number": number, "summary": summary}
    body = json.dumps({"updates": [{"action": "add-snapshot", "snapshot": snapshot}]}).encode()
    path = f"{routes.ICEBERG}/v1/namespaces/lab/tables/events"
    journal.see(ProxyRequest("POST", path, {}, body), None if status is None else ProxyAnswer(status))


def test_a_commit_behind_a_newer_hand_out_has_no_lease() -> None:
    journal = RunJournal()
    hand_out(journal, 1)
    commit(journal, 1, 10, number=1)
    hand_out(journal, 2, "b")
    commit(journal, 1, 20, number=2, status=409)
    commit(journal, 2, 20, number=3)
    assert [c.round_id for c in journal.stale()] == ["r2"]
    assert journal.wrong_commits() == []
    assert journal.wrong_epochs() == []


def test_compactions_are_told_from_rounds() -> None:
    journal = RunJournal()
    hand_out(journal, 1)
    commit(journal, 1, 10, number=1)
    commit(journal, 1, 10, number=2, round_id="r1", more={REWRITE_KEY: "c1"})
    assert [(c.round_id, c.is_rewrite) for c in journal.commits] == [("r1", False), ("c1", True)]
    assert journal.wrong_commits() == []


def test_offsets_that_go_back_and_rounds_that_land_twice_are_seen() -> None:
    journal = RunJournal()
    commit(journal, 1, 20, number=2)
    commit(journal, 1, 10, number=3)
    commit(journal, 1, 30, number=4, round_id="r2")
    commit(journal, 1, 5, number=5, status=None)
    commit(journal, 1, 5, number=6, status=500)
    assert [w.partition(": ")[2].split()[0] for w in journal.wrong_commits()] == ["round", "round"]
    assert "took offsets back" in journal.wrong_commits()[0]
    assert "landed as 2 snapshots" in journal.wrong_commits()[1]


@pytest.mark.parametrize(
    ("epoch", "instance", "coordinator", "wrong"),
    [(4, "b", 2, 0), (3, "a", 2, 0), (3, "b", 2, 1), (2, "b", 2, 1), (4, "b", 0, 1)],
)
def test_epochs_never_go_back_over_restarts(epoch: int, instance: str, coordinator: int, wrong: int) -> None:
    journal = RunJournal()
    hand_out(journal, 3, "a", 1)
    hand_out(journal, epoch, instance, coordinator)
    assert len(journal.wrong_epochs()) == wrong


def test_lease_checks_are_counted_and_noise_is_not_its_business() -> None:
    journal = RunJournal()
    for held in (True, False):
        journal.see(
            ProxyRequest("POST", routes.LEASE_CHECK, {}, b"{}"),
            ProxyAnswer(200, {}, json.dumps({"held": held}).encode()),
        )
    journal.see(ProxyRequest("POST", routes.HEARTBEAT, {}, b"no json"), ProxyAnswer(200, {}, b"{}"))
    journal.see(ProxyRequest("POST", routes.HEARTBEAT, {}, b"{}"), None)
    assert (journal.checks, journal.checks_refused) == (2, 1)


def spell(began: float, lag: float, failures: int = 0) -> Spell:
    return Spell(began=began, ended=began + 10, lags={LOG: [lag], PK: [lag]}, failures=failures)


def test_a_table_that_is_late_beside_a_failing_one_is_named() -> None:
    assert Spells(calm=spell(0, 800), failing=spell(10, 1_500, 3), no_lake=spell(20, 9_000)).later() == []
    late = Spells(calm=spell(0, 800), failing=spell(10, 2_000, 3), no_lake=spell(20, 9_000)).later()
    assert [w.split()[0] for w in late] == [LOG, PK]


@pytest.mark.parametrize(("acked", "doubted", "wrong"), [(10, 0, 0), (4, 0, 1), (10, 1, 1)])
def test_a_store_that_takes_fewer_writes_without_a_lake_is_told(acked: int, doubted: int, wrong: int) -> None:
    spells = Spells(calm=spell(0, 1), failing=spell(10, 1), no_lake=spell(20, 1))
    record = Record(changes=[Change(0, "append", (0,))])
    record.acked = {n: n + 0.5 for n in range(10)} | {100 + n: 20 + n + 0.5 for n in range(acked)}
    record.doubted = {200 + n: 25.0 for n in range(doubted)}
    assert len(spells.stopped_writes([record])) == wrong


def test_snapshots_of_a_folder_count_as_commits(tmp_path: Path) -> None:
    """Each once, also after its file is gone; those of others do not count, nor does one that comes late under an old
    number."""
    path = TablePath.parse(LOG)
    folder = tmp_path / f"{path.database}.db" / path.table / "snapshot"
    folder.mkdir(parents=True)

    def put(number: int, offset: int, **properties: str) -> None:
        said = {
            "lakeward.table-id": TABLE,
            "lakeward.round": f"r{number}",
            "lakeward.epoch": "1",
            "lakeward.job": "job",
            "fluss-offsets": json.dumps({"offsets": {"": [[0, offset]]}}),
            **properties,
        }
        body = {"id": number, "timeMillis": 1_000 * number, "properties": said if offset else None}
        (folder / f"snapshot-{number}").write_text(json.dumps(body))

    journal = RunJournal()
    with watch_commits(tmp_path, "paimon", journal):
        put(1, 10)
        put(2, 20)
        put(3, 0)
        wait_until(lambda: len(journal.commits) == 2, what="both rounds are noted")
        (folder / "snapshot-1").unlink()
        put(1, 5, **{"lakeward.round": "late"})
        put(4, 15)
    assert [(c.round_id, c.at, c.accepted) for c in journal.commits] == [
        ("r1", 1.0, True),
        ("r2", 2.0, True),
        ("r4", 4.0, True),
    ]
    (wrong,) = journal.wrong_commits()
    assert "r4" in wrong
    assert "took offsets back" in wrong


def test_log_entries_of_a_delta_table_count_as_commits(tmp_path: Path) -> None:
    lake, path = DeltaLakeStorage(str(tmp_path)), TablePath.parse(LOG)
    log = ScriptedLog(replace(LakeSuite().table_info(), path=path))
    lake.catalog().create(log.table)
    journal, rounds = RunJournal(), list[str]()
    with watch_commits(tmp_path, "delta", journal):
        for number in (1, 2):
            log.append(B0, row(number))
            made = LakeRound.plan(lake, log)
            made.run()
            rounds.append(made.round_id)
        DeltaForeignEngine(lake.log(path)).touch()
        wait_until(lambda: len(journal.commits) == 2, what="both rounds are noted")
        DeltaForeignEngine(lake.log(path)).clean_log()
    assert [(c.round_id, c.offsets) for c in journal.commits] == [(rounds[0], {"/0": 1}), (rounds[1], {"/0": 2})]
    assert journal.wrong_commits() == []
