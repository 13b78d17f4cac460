# SPDX-License-Identifier: Apache-2.0
"""Fault points: named steps of the protocol where a test may raise, pause or kill. Without an injector they cost a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Injector = Callable[[str, dict[str, Any]], None]

_injector: Injector | None = None


def fault_point(name: str, **facts: Any) -> None:
    """Marks a step. Names read `package.step`, for instance `round.before-lake-commit`."""
    if _injector is not None:
        _injector(name, facts)


def set_injector(injector: Injector | None) -> Injector | None:
    """Puts an injector in place for this process and returns the one before it. Called by `lakeward.testing` only."""
    global _injector
    before, _injector = _injector, injector
    return before
