# SPDX-License-Identifier: Apache-2.0
"""Kills of jobs, of a leading tablet server and of the coordinator, jobs and leaders that stand still: a seed, a run.
`-k 'hurt and [7]'` plays seed 7 again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward_testing.chaos.plan import FaultKind
from tests.fluss.chaos import ClusterLab, plan_cluster_faults
from tests.fluss.world import FlussWorld
from tests.kit.fluss.cluster import TEST_SETTINGS, FlussCluster

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

SEEDS = range(20)
SETTINGS = {
    **TEST_SETTINGS,
    "default.replication.factor": "3",
    "log.replica.min-in-sync-replicas-number": "2",
}
"""Three replicas, of which two have each acknowledged row."""


class Clusters:
    """One for all seeds, which drop their tables: the next one takes up a cluster that was hurt before. After a seed
    that failed comes a new one."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, 0
        self._world: FlussWorld | None = None

    def take(self) -> FlussWorld:
        if self._world is None:
            self._made += 1
            cluster = FlussCluster(home=self._folder / f"fluss-{self._made}", tablets=3, settings=SETTINGS)
            self._world = FlussWorld(cluster.start())
        return self._world

    def drop(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world.cluster.stop()
        self._world = None


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    made = Clusters(tmp_path_factory.mktemp("chaos"))
    yield made
    made.drop()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_that_is_hurt_keeps_its_lake(clusters: Clusters, tmp_path: Path, seed: int) -> None:
    try:
        assert ClusterLab(clusters.take(), tmp_path, seed).run() == []
    except BaseException:
        clusters.drop()
        raise


def test_a_seed_is_a_plan() -> None:
    plans = [plan_cluster_faults(seed) for seed in SEEDS]
    assert plans == [plan_cluster_faults(seed) for seed in SEEDS]
    assert len(set(plans)) == len(SEEDS)
    hurt = {(fault.kind, fault.target) for plan in plans for fault in plan}
    assert {t for kind, t in hurt if kind is FaultKind.KILL} == {"job-a", "job-b", "leader", "coordinator"}
