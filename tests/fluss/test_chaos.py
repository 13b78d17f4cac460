# SPDX-License-Identifier: Apache-2.0
"""Kills of jobs, of a leading tablet server and of the coordinator, jobs and leaders that stand still: a seed, a run.
`-k 'hurt and 7'` plays seed 7 again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.testing.chaos.plan import FaultKind
from lakeward.testing.fluss.cluster import TEST_SETTINGS, FlussCluster
from tests.fluss.chaos import ClusterLab, plan_cluster_faults
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

SEEDS = range(20)
SETTINGS = {
    **TEST_SETTINGS,
    "default.replication.factor": "3",
    "log.replica.min-in-sync-replicas-number": "2",
}
"""Three replicas, of which two have each acknowledged row."""


@pytest.fixture
def hurt(tmp_path: Path) -> Iterator[FlussWorld]:
    """One for each seed: what an earlier one left would be part of the run."""
    cluster = FlussCluster(home=tmp_path / "fluss", tablets=3, settings=SETTINGS).start()
    world = FlussWorld(cluster)
    yield world
    world.close()
    cluster.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_that_is_hurt_keeps_its_lake(hurt: FlussWorld, tmp_path: Path, seed: int) -> None:
    lab = ClusterLab(hurt, tmp_path, seed)
    assert lab.run() == []


def test_a_seed_is_a_plan() -> None:
    plans = [plan_cluster_faults(seed) for seed in SEEDS]
    assert plans == [plan_cluster_faults(seed) for seed in SEEDS]
    assert len(set(plans)) == len(SEEDS)
    hurt = {(fault.kind, fault.target) for plan in plans for fault in plan}
    assert {t for kind, t in hurt if kind is FaultKind.KILL} == {"job-a", "job-b", "leader", "coordinator"}
