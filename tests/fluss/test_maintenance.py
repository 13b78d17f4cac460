# SPDX-License-Identifier: Apache-2.0
"""Our job compacts tables of a Fluss cluster between rounds, and Fluss knows the lake's newest snapshot as before."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest

from lakeward.hot.fluss.handout.compactions import LOOK_ROUNDS
from lakeward.model import TablePath
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, OFFSETS_KEY, LakeSnapshot
from lakeward_testing.waiting import wait_until
from tests.fluss.steps import DATABASE, EVENTS, USERS, Append, Delete, LakeSnapshotOf, MakeTable, Upsert
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak, pytest.mark.usefixtures("job")]

WAVE = 20


def head(world: FlussWorld, name: str) -> LakeSnapshot:
    lake = world.lake(name)
    try:
        found = lake.open_reader(world.table(name)).load_snapshot()
    finally:
        lake.connection.close()
    assert found is not None
    return found


def is_compacted(world: FlussWorld, name: str) -> bool:
    """Somewhere below the head: a wave may take two rounds, and the second may come after the compaction."""
    lake = world.lake(name)
    try:
        return any(s.operation == "replace" for s in lake.open_reader(world.table(name)).snapshots())
    finally:
        lake.connection.close()


def is_known(world: FlussWorld, name: str) -> bool:
    ((snapshot_id, _),) = world.produce(LakeSnapshotOf(table=name))
    return str(snapshot_id) == head(world, name).snapshot_id


def test_small_files_become_one_between_rounds(world: FlussWorld) -> None:
    world.produce(
        MakeTable(name="kept", schema=USERS, primary_key=("id",), buckets=1, freshness="1s"),
        MakeTable(name="kept_log", schema=EVENTS, buckets=1, freshness="1s"),
        MakeTable(
            name="left_alone",
            schema=EVENTS,
            buckets=1,
            freshness="1s",
            properties={"table.datalake.auto-compaction": "false"},
        ),
    )
    users: dict[int, str] = {}
    for wave in range(LOOK_ROUNDS + 1):
        rows = [{"id": n, "name": f"event {n}"} for n in range(WAVE * wave, WAVE * (wave + 1))]
        batch = pa.RecordBatch.from_pylist(rows, schema=EVENTS)
        changed = dict.fromkeys(range(wave, wave + WAVE), f"wave {wave}")
        steps = [Upsert(table="kept", rows=[{"id": n, "name": name} for n, name in changed.items()])]
        world.produce(
            *steps,
            Delete(table="kept", keys=[{"id": wave}]),
            Append(table="kept_log", rows=batch),
            Append(table="left_alone", rows=batch),
        )
        users.update(changed)
        users.pop(wave)
        for name in ("kept", "kept_log", "left_alone"):
            world.wait_tiered(name)
    for name in ("kept", "kept_log"):
        wait_until(partial(is_compacted, world, name), what=f"{name} to be compacted")
        newest = head(world, name)
        assert newest.summary[COMMIT_USER_KEY] == COMMIT_USER
        assert newest.summary[OFFSETS_KEY]
        wait_until(partial(is_known, world, name), what=f"Fluss to know the newest snapshot of {name}")
        assert world.committed(name) == world.ends(name)
    assert {k: r["name"] for k, r in world.by_key("kept").items()} == users
    for name in ("kept_log", "left_alone"):
        assert sorted(world.rows(name).column("id").to_pylist()) == list(range(WAVE * (LOOK_ROUNDS + 1)))
    assert head(world, "left_alone").operation == "append"
    world.produce(Upsert(table="kept", rows=[{"id": 5, "name": "after"}]))
    world.wait_tiered("kept")
    users[5] = "after"
    assert {k: r["name"] for k, r in world.by_key("kept").items()} == users
    assert world.plugin.coordinator().ledger(TablePath(DATABASE, "kept"))
