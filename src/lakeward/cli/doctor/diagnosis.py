# SPDX-License-Identifier: Apache-2.0
"""Result of a check: the present or coming fault, why it matters, and the command that fixes it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    WRONG = "wrong"
    SOON = "soon"
    """It will be wrong, or is when something else happens."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """`about`: a table, a job, or the server."""

    check: str
    level: Level
    about: str
    figure: str
    why: str
    mend: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
