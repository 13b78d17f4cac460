# SPDX-License-Identifier: Apache-2.0
"""Stored nonsense, of a time when a job was believed: left out by name, in the log and the status; all else goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakeward.model import SideId
from lakeward.server.messages import answer
from tests.kit.world import PATH, CoordinatorWorld


def spoil(world: CoordinatorWorld) -> None:
    """What peers could once bring into each table of the file."""
    db, table_id = world.coordinator.board.store.connection, world.hot.load_table(PATH).table_id
    (good,) = db.execute("select body from rounds").fetchone()
    for name, change in (
        ("nan", {"phases": {"write_s": float("nan")}}),
        ("vast", {"rows": 10**30}),
        ("odd", {"round_id": "../x"}),
    ):
        body = json.dumps({**json.loads(good), **change})
        db.execute("insert into rounds values (null, ?, ?, 'default', 'tier', 1, ?)", (f"round-{name}", table_id, body))
    for name, job in (("huge", {"instance": "i", "slots": 10**30}), ("bell\x07", {"instance": "i"})):
        db.execute("insert into jobs values (?, ?)", (name, json.dumps(job)))
    (text,) = db.execute("select body from sides").fetchone()
    side = json.loads(text)
    side["lake"] = {"rows": 10**30, "bytes": float("nan"), "files": 7}
    side["works"]["tier"]["samples"] = [[float("inf"), 1], [1000, 5]]
    db.execute("update sides set body = ?", (json.dumps(side),))
    db.execute("insert into intents values ('../i', ?, 'default', 'tier', 1, 'open', '{}')", (table_id,))
    db.execute("insert into read_leases values ('l', '../t', 'default', 's', 1, '{}')")
    ledger = (table_id, "default", 0, "not a bucket", 0, 1, "r9", "s", 1, "j", "round", 1, 1)
    db.execute("insert into ledger values (null, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", ledger)


def test_stored_nonsense_is_left_out_and_named_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = CoordinatorWorld(tmp_path)
    world.create()
    world.hot.append(PATH, 10)
    world.clock.advance(200)
    (handed,) = world.job().take()
    world.job().commit(handed, 0, 10, "r1")
    world.job().finish(handed, "r1")
    spoil(world)
    world.restart(read_lakes=False)
    named = "\n".join(world.coordinator.views.status().warnings)
    for what in ("round-nan", "round-vast", "round-odd", "job huge", "job bell", "state of table", "read lease l"):
        assert what in named, named
        assert what in caplog.text
    shown: list[Any] = [
        world.coordinator.views.rounds(PATH),
        world.coordinator.views.status(),
        world.coordinator.views.jobs(),
    ]
    for view in shown:
        assert answer(view).status_code == 200
    assert [r.round_id for r in shown[0]] == ["r1"]
    assert [j.name for j in shown[2]] == ["job"]
    (table,) = shown[1].tables
    assert (table.lake_rows, table.lake_bytes, table.lake_files) == (None, None, 7)
    store, side = world.coordinator.board.store, SideId(world.hot.load_table(PATH).table_id)
    assert (store.intents.load(side), len(store.ledger.load(side))) == ([], 1)
    world.coordinator.lakes.read_unseen()
    world.hot.append(PATH, 10)
    world.clock.advance(200)
    assert [t.epoch for t in world.job().take()] == [handed.epoch + 1], "rounds go on where they were"
    world.close()
