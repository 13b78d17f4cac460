# SPDX-License-Identifier: Apache-2.0
"""Two committers from the same offsets, in two processes, one paused at every step in turn: one wins, the
other adopts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.orphans import OrphanOptions, OrphanRemoval
from lakeward.model import TableInfo
from lakeward.spi import ROUND_KEY
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Fault, FaultAction
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.suite import LakeSuite
from tests.kit.iceberg.folder import folder_lake, folder_options
from tests.kit.iceberg.zombie import POINTS, Zombie, finish_round, script, write_round, zombie_process

LATER_MS = 4_000_000_000_000


class Arena:
    """A lake that two processes share."""

    def __init__(self, folder: Path, lake: IcebergLakeStorage, zombie: Zombie) -> None:
        self.folder, self.lake, self.zombie = folder, lake, zombie

    def make_table(self, name: str) -> TableInfo:
        table = LakeSuite().table_info(name, primary_key=("id",))
        self.lake.catalog().create(table)
        return table

    def start_zombie(self, table: TableInfo, seed: int, point: str) -> tuple[Fault, dict[str, Any]]:
        fault = Fault(point=point, action=FaultAction.PAUSE, file=str(self.folder / f"{table.path.table}.pause"))
        planned = self.zombie.order(table=table.to_json(), seed=seed, rounds=2, point=point, file=fault.file)
        return fault, planned

    def end_zombie(self, fault: Fault) -> str:
        fault.release()
        how: str = self.zombie.hear("ended")["how"]
        return how

    def remove_orphans(self, table: TableInfo) -> Any:
        """With no grace, while nobody holds the lease: as the server does after lease and grace."""

        @contextmanager
        def hold() -> Iterator[bool]:
            yield True

        options = OrphanOptions(grace_ms=0, max_age_ms=0)
        return OrphanRemoval(
            self.lake, table, clock=ManualClock(now_ms=LATER_MS), options=options, hold=hold, adopt=lambda base: None
        ).sweep()

    def check(self, table: TableInfo, seed: int) -> None:
        """Every row once and as the log says, every round at most once, and whatever is referenced is there."""
        log = script(table, seed, 2)
        assert lake_rows(self.lake, table) == log.expected(log.ends())
        reader, upkeep = self.lake.open_reader(table), self.lake.open_maintenance(table)
        assert reader.load_base().offsets == log.ends()
        rounds = [s.summary[ROUND_KEY] for s in reader.snapshots()]
        assert len(set(rounds)) == len(rounds)
        missing = [p for p in upkeep.references() if not Path(urlparse(p).path).exists()]
        assert missing == []
        for snapshot in reader.snapshots():
            assert lake_rows(self.lake, table, snapshot.snapshot_id) == log.expected(snapshot.offsets or {})


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    folder = tmp_path_factory.mktemp("zombies")
    with folder_lake(folder) as lake, zombie_process(folder_options(folder)) as zombie:
        yield Arena(folder, lake, zombie)


def race(arena: Arena, seed: int, *, orphans: bool) -> None:
    """One run: a first round, then two rounds planned on it, one of them asleep while the other goes on."""
    chance = random.Random(seed)
    point = POINTS[seed % len(POINTS)]
    table = arena.make_table(f"t{seed}_{int(orphans)}")
    LakeRound.plan(arena.lake, script(table, seed, 1)).run()
    ours = write_round(arena.lake, script(table, seed, 2))
    fault, planned = arena.start_zombie(table, seed, point)
    assert planned["token"] == ours.base.token
    fault.wait_reached(120)
    is_late = point == "lake.after-commit"
    we_commit = is_late or not orphans or chance.random() < 0.5
    if we_commit:
        assert finish_round(ours) == ("lost" if is_late else "won")
    is_fenced = False
    if orphans:
        report = arena.remove_orphans(table)
        assert report.stopped is None
        is_fenced = report.fenced
    wins = is_late or not (we_commit or is_fenced)  # nothing of its files was there to be swept yet
    assert arena.end_zombie(fault) == ("won" if wins else "lost")
    if not we_commit and is_fenced:  # the fence stopped it; the next round brings the rows
        LakeRound.plan(arena.lake, script(table, seed, 2)).run()
    arena.check(table, seed)
    arena.remove_orphans(table)
    arena.check(table, seed)
    left = {f.path for f in arena.lake.open_maintenance(table).list_files()} - arena.lake.open_maintenance(
        table
    ).references()
    assert left == set()


@pytest.mark.parametrize("orphans", [False, True], ids=["two committers", "orphan removal while it sleeps"])
@pytest.mark.parametrize("seed", range(10))
def test_one_wins_and_the_other_adopts(arena: Arena, seed: int, orphans: bool) -> None:
    race(arena, seed, orphans=orphans)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 260))
@pytest.mark.parametrize("orphans", [False, True], ids=["two committers", "orphan removal while it sleeps"])
def test_one_wins_and_the_other_adopts_at_length(arena: Arena, seed: int, orphans: bool) -> None:
    race(arena, seed, orphans=orphans)
