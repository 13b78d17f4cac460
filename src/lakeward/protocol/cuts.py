# SPDX-License-Identifier: Apache-2.0
"""What people and readers ask of cuts."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.cut import Cut, CutState
from lakeward.model.tablepath import TablePath


@dataclass(frozen=True, kw_only=True)
class CreateCut:
    name: str
    tables: tuple[TablePath, ...]


@dataclass(frozen=True, kw_only=True)
class CutStatus:
    """`notes`: in words, what each side that has no snapshot of the cut waits for, or why it never will."""

    cut: Cut
    state: CutState
    notes: tuple[str, ...] = ()
