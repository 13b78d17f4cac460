# SPDX-License-Identifier: Apache-2.0
"""What the Flight server may have under way to the gate."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakeward.hot.embedded.serve.outlet import widen_outlets


@pytest.fixture
def taken() -> Iterator[dict[str, socket.socket]]:
    """Name -> a connection that was taken on the socket of that name."""
    with ExitStack() as opened, tempfile.TemporaryDirectory() as folder:
        found = {}
        for name in ("flight", "other"):
            listener = opened.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(f"{folder}/{name}")
            listener.listen()
            opened.enter_context(socket.socket(socket.AF_UNIX)).connect(f"{folder}/{name}")
            found[name] = opened.enter_context(listener.accept()[0])
        yield found


def test_the_servers_own_connections_get_room_and_no_others(taken: dict[str, socket.socket]) -> None:
    def room() -> dict[str, int]:
        return {name: found.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) for name, found in taken.items()}

    before = room()
    widen_outlets(Path(taken["flight"].getsockname()))
    assert (room()["flight"] > before["flight"], room()["other"]) == (sys.platform == "linux", before["other"])
    taken["flight"].send(b"still open")
