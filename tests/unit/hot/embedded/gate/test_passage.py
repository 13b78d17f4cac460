# SPDX-License-Identifier: Apache-2.0
"""A passage between two sockets, step by step: what the gate says itself goes between the server's frames."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakeward.errors import QuotaExceeded
from lakeward.hot.embedded.gate.callcount import CallCount
from lakeward.hot.embedded.gate.frames import DATA, GOAWAY, HEADERS, RST_STREAM, frame
from lakeward.hot.embedded.gate.passage import Passage
from lakeward.hot.embedded.gate.pipes import Pipes
from lakeward.hot.embedded.gate.settings import GateLimits
from tests.unit.hot.embedded.gate.conversation import GREETING, call, data, frames, message, rules

LONG = frame(DATA, 0, 1, bytes(300_000))


@dataclass
class Lane:
    """A client, a server, and the gate's passage between them, which moves when it is told to."""

    client: socket.socket
    server: socket.socket
    passage: Passage
    now: list[float]
    calls: CallCount

    def step(self) -> None:
        self.passage.step(memoryview(bytearray(512 * 1024)), up=True, down=True)

    def heard(self) -> bytes:
        """What came to the client, all of it."""
        raw = b""
        with suppress(BlockingIOError):
            while True:
                self.step()
                while piece := self.client.recv(1 << 20):
                    raw += piece
        return raw


@pytest.fixture(params=["spliced", "copied"])
def lane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lane]:
    path, now = tmp_path / "s", [0.0]
    with socket.socket(socket.AF_UNIX) as listener, socket.create_server(("127.0.0.1", 0)) as gate:
        listener.bind(str(path))
        listener.listen()
        client = socket.create_connection(gate.getsockname())
        inner, peer = gate.accept()
        inner.setblocking(False)
        inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as the gate does
        pipes = Pipes() if request.param == "spliced" else None
        known, calls = rules(["ann:admin:top"]), CallCount(per_token=20)
        passage = Passage(inner, peer, str(path), known, GateLimits(), pipes, lambda: now[0], calls)
        client.sendall(GREETING + call(1, "DoPut", "top"))
        while passage.server is None:
            passage.step(memoryview(bytearray(512 * 1024)), up=True, down=False)
        server, _ = listener.accept()
        client.setblocking(False)
        server.setblocking(False)
        yield Lane(client, server, passage, now, calls)
        passage.close()
        passage.close_sockets()
        client.close()
        server.close()


def kinds(raw: bytes) -> list[int]:
    return [kind for kind, *_ in frames(raw)]


def test_calls_end_with_their_connection(lane: Lane) -> None:
    for _ in range(19):
        lane.calls.begin("ann")
    with pytest.raises(QuotaExceeded, match="20 Flight calls"):
        lane.calls.begin("ann")
    lane.passage.close()
    lane.calls.begin("ann")


def test_a_refusal_waits_for_the_end_of_the_servers_frame(lane: Lane) -> None:
    lane.server.send(LONG[:100_000])
    raw = lane.heard()
    assert raw == LONG[:100_000]
    lane.client.send(call(3, "DoPut", "wrong"))
    assert lane.heard() == b""
    lane.server.send(LONG[100_000:200_000])
    raw += lane.heard()
    lane.server.send(LONG[200_000:])
    raw += lane.heard()
    assert kinds(raw) == [DATA, HEADERS, RST_STREAM]
    assert frames(raw)[0][3] == bytes(300_000)


def test_a_client_that_does_not_read_is_not_read_for(lane: Lane) -> None:
    """What waits for it stays with the server."""
    sent = 0
    with suppress(BlockingIOError):
        for _ in range(2_000):
            sent += lane.server.send(frame(DATA, 0, 1, bytes(16_000)))
            lane.step()
    assert sent < 16_000_000
    assert lane.passage.down is not None
    assert lane.passage.down.is_blocked
    assert lane.passage.wanted()[1] == 0
    lane.now[0] = 601.0
    lane.passage.look(601.0)
    assert lane.passage.is_over


def test_a_stream_without_words_ends_and_the_server_is_told(lane: Lane) -> None:
    lane.client.send(data(1, message(5)))
    lane.step()
    lane.server.recv(100_000)
    lane.now[0] = 599.0
    lane.passage.look(599.0)
    assert lane.heard() == b""
    lane.now[0] = 601.0
    lane.passage.look(601.0)
    assert kinds(lane.heard()) == [HEADERS, RST_STREAM]
    assert kinds(lane.server.recv(100_000)) == [RST_STREAM]
    lane.passage.look(1300.0)
    assert kinds(lane.heard()) == [GOAWAY]
    lane.now[0] = 1302.0
    lane.passage.look(1302.0)
    assert lane.passage.is_over


def test_half_a_message_may_stand_still_for_the_header_time(lane: Lane) -> None:
    lane.client.send(data(1, message(500))[:100])
    lane.step()
    lane.passage.look(19.0)
    assert not lane.passage.is_over
    lane.passage.look(21.0)
    assert lane.passage.is_over
