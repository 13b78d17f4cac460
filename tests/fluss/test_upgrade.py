# SPDX-License-Identifier: Apache-2.0
"""A cluster of Fluss 0.9.1 that becomes one of 1.0 where it stands: its tables keep their system columns, new ones have
none, and both are tiered side by side.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakeward.errors import FlussError, ServerUnavailable
from lakeward.model import TablePath
from lakeward.protocol.heartbeat import TableFinished
from lakeward_testing.waiting import wait_until
from tests.fluss.kinds import KINDS, Grown, Kind, counted, scan_kv
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE
from tests.fluss.world import SYSTEM, FlussWorld
from tests.kit.fluss.cluster import TEST_SETTINGS, FlussCluster

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

OLD_KINDS = tuple(kind for kind in KINDS if not kind.properties)
"""What 0.9.1 can make."""


def test_old_and_new_tables_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "fluss"
    old = [Grown(kind, "old_", "1h") for kind in OLD_KINDS]
    with monkeypatch.context() as before:
        before.setenv("FLUSS_VERSION", "0.9.1")
        before.delenv("LAKEWARD_FLUSS_JARS", raising=False)
        ports = run_old(FlussCluster(home=home, settings=TEST_SETTINGS), old)
    shutil.rmtree(home / "plugins")  # the older version's
    run_new(FlussCluster(home=home, settings=TEST_SETTINGS, ports=ports), old, KINDS)


def run_old(cluster: FlussCluster, tables: list[Grown]) -> dict[str, int]:
    """Two rounds of each table. The second one's rows of PK tables replace others."""
    try:
        world = FlussWorld(cluster.start())
        rounds = OnDemand(world)
        world.produce(*(step for table in tables for step in table.make()))
        tier(world, rounds, tables, 0)
        tier(world, rounds, tables, 1)
        rounds.close()
        world.close()
    finally:
        cluster.stop()
    return cluster.ports


def run_new(cluster: FlussCluster, old: list[Grown], kinds: tuple[Kind, ...]) -> None:
    try:
        world = FlussWorld(cluster.start())
        wait_until(
            lambda: [world.ends(table.name) for table in old],
            what="Fluss has its tables back",
            tolerate=(ServerUnavailable, FlussError),
        )
        new, rounds = [Grown(kind, "new_", "1h") for kind in kinds], OnDemand(world)
        world.produce(*(step for table in new for step in table.make()))
        for turn in (2, 3):
            tier(world, rounds, [*old, *new], turn)
        for table in (*old, *new):
            assert has_system_columns(world, table.name) == (table in old)
            assert not table.is_pk or counted(scan_kv(world, table.name)) == counted(table.expected)
        rounds.close()
        world.close()
    finally:
        cluster.stop()


def tier(world: FlussWorld, rounds: OnDemand, tables: list[Grown], turn: int) -> None:
    world.produce(*(step for table in tables for step in table.grow(turn)))
    for table in tables:
        assert isinstance(rounds.run(table.name), TableFinished)
        table.check(world)


def has_system_columns(world: FlussWorld, name: str) -> bool:
    lake = world.lake(name)
    try:
        return lake.connection.load(TablePath(DATABASE, name)).schema().column_names[-3:] == SYSTEM
    finally:
        lake.connection.close()
