# SPDX-License-Identifier: Apache-2.0
"""Real server processes for tests: `server` is one of its own, `start_server` makes as many as a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.serverprocess import ServerProcess

StartServer = Callable[..., ServerProcess]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """`start_server(name="a", settings={...}, arguments=[...])`: running, and killed after the test."""
    started: list[ServerProcess] = []

    def start(name: str = "data", **options: Any) -> ServerProcess:
        made = ServerProcess(tmp_path / name, **options)
        started.append(made)
        return made.start()

    yield start
    for server in started:
        server.close()


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    """A server without a lake, in an empty folder."""
    return start_server()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for all tests of a worker that only need tables of their own."""
    made = ServerProcess(tmp_path_factory.mktemp("shared") / "data").start()
    yield made
    made.close()
