# SPDX-License-Identifier: Apache-2.0
"""A real server's Flight door: memory that strangers cannot take, and writers that pause."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from lakeward.model import Bucket
from lakeward.protocol.flight import log_ticket, to_bytes
from lakeward_testing.waiting import wait_until
from tests.kit.serverprocess import ServerProcess
from tests.process.http2 import END_STREAM, GREETING, call, data
from tests.server.conftest import StartServer

TOKENS = "ann:admin:top"
GROWTH_KB = 20_000


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
        except (flight.FlightError, pa.ArrowInvalid) as error:
            return type(error).__name__
    return "taken"


def check_tickets(server: ServerProcess, sizes: list[int], secret: str | None, answer: str) -> None:
    """Refused, and the server never held them."""
    uri, before = server.client(token="top").info().flight_uri, forget_peak(server.pid)
    with ThreadPoolExecutor(len(sizes)) as pool:
        assert {*pool.map(lambda size: send_ticket(uri, size, secret), sizes)} == {answer}
    assert status(server.pid, "VmHWM") - before < GROWTH_KB


def test_a_ticket_of_400_megabytes_takes_no_memory(start_server: StartServer) -> None:
    server = start_server(settings={"server.tokens": TOKENS})
    check_tickets(server, [400_000_000], None, "FlightUnauthenticatedError")
    check_tickets(server, [400_000_000], "top", "ArrowInvalid")
    table = server.client(token="top").create_table("d.t", "id BIGINT NOT NULL")
    table.append({"id": 1})
    assert table.scan(0).num_rows == 1
    assert '"who": "nobody"' in (server.data / "audit" / "audit.log").read_text()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("secret", "answer"), [(None, "FlightUnauthenticatedError"), ("top", "ArrowInvalid")], ids=["none", "top"]
)
def test_six_of_300_megabytes_take_no_memory(start_server: StartServer, secret: str | None, answer: str) -> None:
    check_tickets(start_server(settings={"server.tokens": TOKENS}), [300_000_000] * 6, secret, answer)


def test_answers_that_nobody_reads_are_charged(start_server: StartServer) -> None:
    server = start_server(settings={"server.memory.max-in-flight": "32mb", "server.flight.header-time": "1 s"})
    table = server.client().create_table("d.t", "id BIGINT NOT NULL, text STRING", buckets=1)
    for at in range(0, 160_000, 8_000):
        table.append(pa.record_batch({"id": range(at, at + 8_000), "text": ["x" * 120] * 8_000}))
    ticket = to_bytes(log_ticket(table.info, Bucket("", 0), 0, 160_000))
    port, before = int(server.client().info().flight_uri.rpartition(":")[2]), forget_peak(server.pid)
    with ExitStack() as peers:
        for _ in range(60):
            peer = peers.enter_context(socket.create_connection(("127.0.0.1", port), timeout=120))
            peer.sendall(GREETING + call(1, "DoGet") + data(1, request(ticket), END_STREAM))
        assert table.scan(0, 0, 10).num_rows == 10, "others go on once those ended that take nothing"
    assert status(server.pid, "VmHWM") < before + 300_000


def request(ticket: bytes) -> bytes:
    """A gRPC message with a ticket of up to 16 kB in it."""
    size = len(ticket)
    body = bytes([0x0A, size & 0x7F | 0x80, size >> 7]) + ticket
    return b"\0" + len(body).to_bytes(4, "big") + body


def test_a_writer_that_pauses_goes_on(start_server: StartServer) -> None:
    """Its stream ended meanwhile; it opens another and nobody notices."""
    server = start_server(settings={"server.flight.idle-time": "1 s"})
    table = server.client().create_table("d.t", "id BIGINT NOT NULL")
    table.append({"id": 1})
    audit = server.data / "audit" / "audit.log"
    wait_until(lambda: '"put append"' in audit.read_text(), what="the end of the idle stream")
    table.append({"id": 2})
    assert table.scan(0)["id"].to_pylist() == [1, 2]
