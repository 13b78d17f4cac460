# SPDX-License-Identifier: Apache-2.0
"""Jobs as they were stored: what no job can have said is left out and named."""

from __future__ import annotations

import pytest

from lakeward.coordinator.state.jobs import JobRecord, load_jobs
from lakeward.model import InstanceId, JobName, LeftOut
from lakeward.protocol.heartbeat import HeartbeatRequest


def test_stored_nonsense_is_left_out_by_name(caplog: pytest.LogCaptureFixture) -> None:
    stored = {
        JobName("good"): {"instance": "i", "slots": 2},
        JobName("huge"): {"instance": "i", "slots": 10**30},
        JobName("odd"): {"instance": "../i", "slots": 1},
        JobName("strange"): {"slots": 1, "colour": "red"},
    }
    left_out = LeftOut("coordinator.db")
    assert list(load_jobs(stored, 0.0, left_out)) == ["good"]
    for name in ("huge", "odd", "strange"):
        assert f"job {name}" in caplog.text


def test_a_late_beat_is_no_clock_that_is_behind() -> None:
    """On one machine a beat that waited 3 s was an alarm about clocks."""
    job = JobRecord(name=JobName("j"), instance=InstanceId("i"))

    def beat(sent_ms: int, arrived_ms: int) -> int | None:
        job.take(HeartbeatRequest(job=job.name, instance=job.instance, now_ms=sent_ms), 0.0, arrived_ms)
        return job.clock_apart_ms

    assert [beat(n * 5_000, n * 5_000 + delay) for n, delay in enumerate((3_000, 20, 4_000, 9_000))][2:] == [-20, -20]
    behind = JobRecord(name=JobName("b"), instance=InstanceId("i"))
    for n in range(3):
        request = HeartbeatRequest(job=behind.name, instance=behind.instance, now_ms=n * 5_000)
        behind.take(request, 0.0, n * 5_000 + 3_000)
    assert behind.clock_apart_ms == -3_000
