# SPDX-License-Identifier: Apache-2.0
"""Rows of another engine stop the rounds of a PK table until an operator resyncs it, whatever orphan removal and the
coordinator do meanwhile.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakeward.model import TablePath, TableState
from lakeward.protocol.heartbeat import TableFailed
from lakeward_testing.faults import Faults
from tests.chaos.stage import TABLE, Stage


def test_they_stay_foreign_through_sweeps_quarantine_and_resume(tmp_path: Path, faults: Faults) -> None:
    stage = Stage(tmp_path, faults, pk=True)
    try:
        stage.grow(3).job("first").finish()
        theirs = [{"id": 0, "v": "theirs", "__bucket": 0, "__offset": 10**12, "__timestamp": 0}]
        stage.foreign.append(pa.Table.from_pylist(theirs, stage.foreign.load().schema().as_arrow()))
        stage.grow()
        _fails(stage, "before the sweep")
        stage.orphans(sweep=True).finish()
        _fails(stage, "after a sweep")
        for number in range(20):
            if _state(stage) is TableState.QUARANTINED:
                break
            _fails(stage, f"failing-{number}")
        assert _state(stage) is TableState.QUARANTINED
        stage.orphans(sweep=True).finish()
        stage.world.coordinator.operations.resume(TablePath.parse(TABLE))
        _fails(stage, "after quarantine")
        stage.ask_resync().job("resync").finish()
        stage.actors.clear()
        assert stage.violations() == []
    finally:
        stage.close()


def _fails(stage: Stage, name: str) -> None:
    stage.clock.advance(3_600)  # type: ignore[attr-defined]
    end = stage.job(name).finish()
    assert isinstance(end, TableFailed), name
    assert end.error["code"] == "foreign-rows-found", name


def _state(stage: Stage) -> TableState:
    return stage.world.coordinator.views.table(TablePath.parse(TABLE)).state
