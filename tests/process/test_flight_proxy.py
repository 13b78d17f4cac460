# SPDX-License-Identifier: Apache-2.0
"""The proxy that docs/security.md puts before Flight: one address cannot take all connections, others pass."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pyarrow.flight as flight
import pytest

from lakeward_testing.waiting import wait_until
from tests.unit.hot.embedded.serve.standin import serving

DOCS = Path(__file__).parents[2] / "docs" / "security.md"
MOST = 5


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def is_taken(port: int, address: str) -> bool:
    """A connection from this address is kept."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=120, source_address=(address, 0)) as peer:
            peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            return bool(peer.recv(1))
    except ConnectionResetError:
        return False


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="HAProxy is not installed")
def test_an_address_has_so_many_connections_and_another_its_own(tmp_path: Path) -> None:
    (documented,) = re.findall(r"```\n(defaults\n.*?)```", DOCS.read_text(), re.DOTALL)
    with serving() as served, ExitStack() as held:
        outer = free_port()
        written = documented.replace("192.0.2.10:9051", f"127.0.0.1:{outer}").replace("gt 250", f"gt {MOST}")
        config = tmp_path / "haproxy.cfg"
        config.write_text(written.replace("127.0.0.1:9051", f"127.0.0.1:{served.port}"))
        proxy = subprocess.Popen(["haproxy", "-db", "-f", str(config)], stderr=subprocess.DEVNULL)
        held.callback(proxy.wait, 60)
        held.callback(proxy.kill)
        wait_until(lambda: is_taken(outer, "127.0.0.3"), what="the proxy", tolerate=(ConnectionError,))
        for _ in range(MOST):
            held.enter_context(socket.create_connection(("127.0.0.1", outer), source_address=("127.0.0.2", 0)))
        wait_until(lambda: not is_taken(outer, "127.0.0.2"), what="the proxy to refuse one more")
        assert is_taken(outer, "127.0.0.3")
        with flight.FlightClient(f"grpc://127.0.0.1:{outer}") as client:
            assert len(list(client.do_action(flight.Action("list-tables", b"{}")))) == 1
