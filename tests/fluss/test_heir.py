# SPDX-License-Identifier: Apache-2.0
"""Our job dies between its lake commit and its word to Fluss, and the Flink job is the one that comes after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward_testing.faults import Fault, FaultAction
from tests.fluss.flink import FlinkTieringJob
from tests.fluss.test_handover import LEASE_S, Load, restart_coordinator
from tests.fluss.world import FlussWorld, ThreadJob

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


def test_the_flink_job_takes_over_what_fluss_was_not_told(lone: FlussWorld, tmp_path: Path) -> None:
    """With nothing of the table known to Fluss, and with an older snapshot known; then ours goes on."""
    load = Load(lone)
    for turn in range(2):
        load.step(2 * turn)
        kill = Fault(point="round.after-lake-commit", action=FaultAction.KILL)
        victim = ThreadJob(lone.cluster.bootstrap, f"victim-{turn}", slots=1, faults=kill.to_text())
        victim.wait_dead(60)
        restart_coordinator(lone, load.log)
        load.step(2 * turn + 1)
        flink = FlinkTieringJob(lone.cluster, tmp_path / f"flink-{turn}.log")
        try:
            load.check(LEASE_S)
        finally:
            flink.stop()
        restart_coordinator(lone, load.log)
    ours = ThreadJob(lone.cluster.bootstrap, "heir")
    try:
        load.step(4)
        load.check(LEASE_S)
    finally:
        ours.stop()
