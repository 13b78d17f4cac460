# SPDX-License-Identifier: Apache-2.0
"""Jobs as they were stored: what no job can have said is left out and named."""

from __future__ import annotations

import pytest

from lakeward.coordinator.state.jobs import load_jobs
from lakeward.model.ids import JobName
from lakeward.model.leftout import LeftOut


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
