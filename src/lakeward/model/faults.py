# SPDX-License-Identifier: Apache-2.0
"""Fault points: named steps of the protocol where a test may raise, pause or kill. Without an injector they cost a
call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

FAULTS_ENV = "LAKEWARD_FAULTS"
"""Tells a child process what to inject where; `lakeward_testing.faults` reads it."""

Injector = Callable[[str, dict[str, Any]], None]

_injector: Injector | None = None
_told_by_environment = FAULTS_ENV in os.environ


def fault_point(name: str, **facts: Any) -> None:
    """Marks a step. Names read `package.step`, for instance `round.before-lake-commit`."""
    if _told_by_environment:
        _install_from_environment()
    if _injector is not None:
        _injector(name, facts)


def set_injector(injector: Injector | None) -> Injector | None:
    """Puts an injector in place for this process and returns the one before it. Called by `lakeward_testing` only."""
    global _injector
    before, _injector = _injector, injector
    return before


def _install_from_environment() -> None:
    """By name, as `testing` stands above this package: also executors and servers that a test starts must find it."""
    global _told_by_environment
    _told_by_environment = False
    import_module("lakeward_testing.faults").install_from_environment()
