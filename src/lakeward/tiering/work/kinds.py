# SPDX-License-Identifier: Apache-2.0
"""The kinds of work that a job can do, by name. A kind is a folder beside `round`, and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from lakeward.model import TIER, WorkKind
from lakeward.model.side import COMPACT

if TYPE_CHECKING:
    from lakeward.tiering.work.runner import WorkRunner

KINDS: Mapping[WorkKind, str] = {
    TIER: "lakeward.tiering.round.runner:TierRunner",
    COMPACT: "lakeward.tiering.compact.runner:CompactRunner",
}
"""Class by name, as executors import no more than the kind that they are asked for."""


@cache
def load_runner(kind: WorkKind) -> WorkRunner:
    """Raises `KeyError` for a name that is not registered."""
    module, _, class_name = KINDS[kind].partition(":")
    runner: WorkRunner = getattr(importlib.import_module(module), class_name)()
    return runner
