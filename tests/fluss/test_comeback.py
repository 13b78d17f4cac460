# SPDX-License-Identifier: Apache-2.0
"""A job that was killed in the middle of a round and comes back under its name does not wait for its own old lease."""

from __future__ import annotations

import pytest

from lakeward_testing.faults import Fault, FaultAction
from tests.fluss.steps import EVENTS, Append, MakeTable, events
from tests.fluss.test_handover import LEASE_S
from tests.fluss.world import FlussWorld, ThreadJob
from tests.kit.fluss.jars import fluss_version

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

LIMIT_S = LEASE_S if fluss_version() == "0.9.1" else 60.0
"""Half of Fluss's lease. Of 0.9.1 one coordinator's epochs are not told from another's, so nothing is given back."""


def test_a_job_that_comes_back_takes_its_table_at_once(lone: FlussWorld) -> None:
    lone.produce(
        MakeTable(name="back", schema=EVENTS, buckets=1, freshness="1s"), Append(table="back", rows=events(0, 10))
    )
    kill = Fault(point="round.planned", action=FaultAction.KILL)
    victim = ThreadJob(lone.cluster.bootstrap, "phoenix", slots=1, faults=kill.to_text())
    victim.wait_dead(100)
    again = ThreadJob(lone.cluster.bootstrap, "phoenix", slots=1)
    try:
        lone.wait_tiered("back", limit_s=LIMIT_S)
    finally:
        again.stop()
