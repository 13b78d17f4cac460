# SPDX-License-Identifier: Apache-2.0
"""The chaos lab with real processes: a short run here, every kind of fault and several seeds in the soak."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakeward_testing.chaos.lab import ChaosLab, LabOptions, LabReport
from lakeward_testing.chaos.plan import FaultKind, plan_faults

SOAK_MINUTES = float(os.environ.get("LAKEWARD_SOAK_MINUTES", "5"))
"""How long the soak goes on hurting, in all."""


SEED = 6
"""Of which the short run meets each of its kinds."""


def run(folder: Path, options: LabOptions) -> LabReport:
    said: list[str] = []
    report = ChaosLab(folder, options, say=said.append).run()
    wrong = [f"{v.number} {v.words}: {w}" for v in report.verdicts for w in v.wrong]
    assert report.holds, "\n".join([*said, *wrong])
    assert report.figures["acknowledged"] > 0
    assert sum(report.faults.values()) > 0
    assert all(v.held for v in report.verdicts if v.number != 4), "only a zombie can be missed"
    return report


def test_kills_and_pauses_of_everything(tmp_path: Path) -> None:
    kinds = (FaultKind.ZOMBIE, FaultKind.STEP, FaultKind.KILL, FaultKind.PAUSE, FaultKind.LOSE_ANSWER)
    run(tmp_path / "lab", LabOptions(seed=1, seconds=7, kinds=kinds, every_s=1.0, producers=1, spell_s=3.0))


@pytest.mark.soak
def test_a_hostile_peer_no_descriptors_a_full_disk_and_an_upkeep_that_ends(tmp_path: Path) -> None:
    """Where no small disk can be mounted, the full disk is left out."""
    kinds = (FaultKind.HOSTILE, FaultKind.DESCRIPTORS, FaultKind.FULL_DISK, FaultKind.UPKEEP)
    options = LabOptions(seed=SEED, seconds=9, kinds=kinds, every_s=1.0, producers=1, spell_s=2.0)
    assert {fault.kind for fault in plan_faults(SEED, 7, kinds, every_s=1.0)} == set(kinds)
    report = run(tmp_path / "lab", options)
    assert set(report.faults) | {FaultKind.FULL_DISK} == set(kinds)
    assert [v.number for v in report.verdicts if v.number == 12] == [12]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(max(1, int(SOAK_MINUTES))))
def test_every_kind_of_fault(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "lab", LabOptions(seed=100 + seed, seconds=60, every_s=1.2))


@pytest.mark.soak
@pytest.mark.parametrize("format", ["paimon", "delta", "lance", "hudi"])
def test_every_kind_of_fault_in_another_format(tmp_path: Path, format: str) -> None:
    report = run(tmp_path / "lab", LabOptions(seed=300, seconds=60, every_s=1.2, format=format))
    assert report.figures["rounds"] > 0


@pytest.mark.soak
@pytest.mark.spark
def test_jobs_on_spark(tmp_path: Path) -> None:
    run(tmp_path / "lab", LabOptions(seed=7, seconds=60, every_s=4.0, spark=True))
