# SPDX-License-Identifier: Apache-2.0
"""A real server's Flight door: memory that strangers cannot take, a gate that dies, writers that pause."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pyarrow.flight as flight
import pytest

from lakeward.client import Table
from lakeward_testing.waiting import wait_until
from tests.kit.serverprocess import ServerProcess
from tests.server.conftest import StartServer

TOKENS = "ann:admin:top"
GROWTH_KB = 20_000


def gate_of(server: ServerProcess) -> int:
    gates: list[int] = [
        c.pid for c in psutil.Process(server.pid).children() if "lakeward.hot.embedded.gate" in c.cmdline()
    ]
    (gate,) = gates
    return gate


def status(pid: int, name: str) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{name}:")[2].split()[0])


def forget_peak(pid: int) -> int:
    """The memory now, from which on the peak counts again."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return status(pid, "VmRSS")


def send_ticket(uri: str, size: int, secret: str | None) -> str:
    headers = [] if secret is None else [(b"authorization", f"Bearer {secret}".encode())]
    with flight.FlightClient(uri) as client:
        try:
            client.do_get(flight.Ticket(bytes(size)), flight.FlightCallOptions(headers=headers, timeout=120)).read_all()
        except flight.FlightError as error:
            return type(error).__name__
    return "taken"


def check_tickets(server: ServerProcess, sizes: list[int], secret: str | None, answer: str) -> None:
    """Refused, and neither the server nor its gate ever held them."""
    uri, pids = server.client(token="top").info().flight_uri, (server.pid, gate_of(server))
    before = [forget_peak(pid) for pid in pids]
    with ThreadPoolExecutor(len(sizes)) as pool:
        assert {*pool.map(lambda size: send_ticket(uri, size, secret), sizes)} == {answer}
    grown = [status(pid, "VmHWM") - kb for pid, kb in zip(pids, before, strict=True)]
    assert max(grown) < GROWTH_KB, grown


def test_a_ticket_of_400_megabytes_takes_no_memory(start_server: StartServer) -> None:
    server = start_server(settings={"server.tokens": TOKENS})
    check_tickets(server, [400_000_000], None, "FlightUnauthenticatedError")
    check_tickets(server, [400_000_000], "top", "FlightServerError")
    table = server.client(token="top").create_table("d.t", "id BIGINT NOT NULL")
    table.append({"id": 1})
    assert table.scan(0).num_rows == 1
    assert '"who": "nobody"' in (server.data / "audit" / "audit.log").read_text()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("secret", "answer"), [(None, "FlightUnauthenticatedError"), ("top", "FlightServerError")], ids=["none", "top"]
)
def test_six_of_300_megabytes_take_no_memory(start_server: StartServer, secret: str | None, answer: str) -> None:
    check_tickets(start_server(settings={"server.tokens": TOKENS}), [300_000_000] * 6, secret, answer)


def write_all(table: Table, rows: int, written: threading.Semaphore) -> None:
    for number in range(rows):
        table.append({"id": number})
        written.release()


def test_a_gate_killed_under_a_writer_loses_and_doubles_nothing(start_server: StartServer) -> None:
    server = start_server()
    table = server.client().create_table("d.t", "id BIGINT NOT NULL")
    written = threading.Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write_all, table, 400, written)
        for _ in range(4):
            for _ in range(50):
                assert written.acquire(timeout=120)
            gate = wait_until(lambda: gate_of(server), what="a gate", tolerate=(ValueError, psutil.NoSuchProcess))
            os.kill(gate, signal.SIGKILL)
        done.result(120)
    assert sorted(table.scan(0)["id"].to_pylist()) == list(range(400))


def test_a_writer_that_pauses_goes_on(start_server: StartServer) -> None:
    """Its stream ended meanwhile; it opens another and nobody notices."""
    server = start_server(settings={"server.flight.idle-time": "1 s"})
    table = server.client().create_table("d.t", "id BIGINT NOT NULL")
    table.append({"id": 1})
    audit = server.data / "audit" / "audit.log"
    wait_until(lambda: '"put append"' in audit.read_text(), what="the end of the idle stream")
    table.append({"id": 2})
    assert table.scan(0)["id"].to_pylist() == [1, 2]
