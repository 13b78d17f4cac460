# SPDX-License-Identifier: Apache-2.0
"""A server of the cluster dies and comes back while a round of ours stands at a given step; nothing is lost, nothing is
there twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.errors import FlussError, ServerUnavailable
from lakeward_testing.faults import Fault, FaultAction
from lakeward_testing.waiting import wait_until
from tests.fluss.test_handover import Load
from tests.fluss.world import FlussWorld, ThreadJob

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

AWAY = (ServerUnavailable, FlussError)
GIVEN_UP = ("split.before-read", "round.before-lease-check")
POINTS = {
    "coordinator": (*GIVEN_UP, "round.before-lake-commit", "round.before-coordinator-commit"),
    "tablet-0": ("split.before-read", "round.before-lake-commit"),
}


@pytest.mark.parametrize("server", list(POINTS))
def test_a_server_restarts_in_the_middle_of_a_round(lone: FlussWorld, tmp_path: Path, server: str) -> None:
    """The coordinator's epochs restart with it: a round that has not asked for its lease yet is given up, a later one
    goes through.
    """
    load = Load(lone)
    for turn, point in enumerate(POINTS[server]):
        load.step(turn)
        fault = Fault(point=point, action=FaultAction.PAUSE, file=str(tmp_path / f"pause-{turn}"))
        job = ThreadJob(lone.cluster.bootstrap, f"turn-{turn}", faults=fault.to_text())
        try:
            fault.wait_reached(120)
            lone.cluster.kill(server)
            lone.cluster.start_process(server)
            lone.cluster.wait_ready()
            wait_until(lambda: lone.ends(load.log), what="Fluss is back", tolerate=AWAY)
            fault.release()
            load.check(90)
            log = job.log
        finally:
            fault.release()
            job.stop()
        if server == "coordinator" and point in GIVEN_UP:
            assert "no longer holds the lease" in log
        assert "WARNING:lakeward.tiering:round" not in log, log
