# SPDX-License-Identifier: Apache-2.0
"""Requests and answers about cuts."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model import Cut, CutSchedule, CutState, TablePath


@dataclass(frozen=True, kw_only=True)
class CreateCut:
    name: str
    tables: tuple[TablePath, ...]


@dataclass(frozen=True, kw_only=True)
class CutStatus:
    """State of a cut. `notes`: per side without a snapshot of the cut, why it waits or will never have one."""

    cut: Cut
    state: CutState
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CutScheduleStatus:
    """`cuts`: those that it made and that are there, oldest first. `trouble`: why the last one could not be made."""

    schedule: CutSchedule
    cuts: tuple[str, ...] = ()
    next_at_ms: int = 0
    trouble: str = ""
