# SPDX-License-Identifier: Apache-2.0
"""Tests of some folders start no process: `make unit` stays quick, and what is red there is red in one process."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

ALONE = ("tests/unit/", "tests/property/", "tests/model/")
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec"}
_watched: pytest.Item | None = None


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if _watched is not None and event in STARTS:
        raise AssertionError(f"{_watched.nodeid} starts {arguments[:1]} ({event}): its place is tests/process")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def start_no_process(request: pytest.FixtureRequest) -> Iterator[None]:
    global _watched
    _watched = request.node if request.node.nodeid.startswith(ALONE) else None
    yield
    _watched = None
