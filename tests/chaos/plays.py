# SPDX-License-Identifier: Apache-2.0
"""Plays one trace of the model on a stage of its own, with all protections or without some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lakeward.spi import LakeStorage
from lakeward_testing.faults import Faults
from tests.chaos.stage import Stage

Trace = Callable[[Stage], None]


def play(
    folder: Path,
    faults: Faults,
    trace: Trace,
    weak: tuple[str, ...],
    pk: bool = False,
    *,
    recover: bool = True,
    lake: LakeStorage | None = None,
    buckets: int = 1,
) -> list[str]:
    """What was wrong in the end; nothing is, where the protections hold. `lake`: another format than Iceberg."""
    folder.mkdir()
    stage = Stage(folder, faults, weak, pk=pk, lake=lake, buckets=buckets)
    try:
        trace(stage)
        return stage.violations(recover=recover)
    finally:
        stage.close()
