# SPDX-License-Identifier: Apache-2.0
"""A hostile peer beside everybody else: half-sent, huge, idle and exploding calls at both doors, for some seconds.

`python -m lakeward_testing.chaos.hostile HTTP_PORT FLIGHT_PORT SEED SECONDS`."""

from __future__ import annotations

import base64
import io
import json
import random
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

import pyarrow as pa
import pyarrow.flight as flight

from lakeward_testing.chaos.tables import PK

MOST_OPEN = 150
"""Connections that it keeps: below `server.http.max-connections-per-peer`, as honest peers share its address here."""

PIECE = b"x" * (1 << 20)
BODY_BYTES = 15 << 20
"""Announced: just below what is taken."""

TICKET_BYTES = 96 << 20
"""More than any message may have. Shorter ones of a caller who is let in are held whole (docs/security.md)."""
DEEP = b"[" * 200_000
PATIENCE_S = 3.0


class HostilePeer:
    def __init__(self, http_port: int, flight_port: int, seed: int) -> None:
        self._http_port, self._flight_port = http_port, flight_port
        self._chance = random.Random(seed)  # noqa: S311 - choice of attacks, not of secrets
        self.tried: Counter[str] = Counter()
        self._open: deque[socket.socket] = deque()

    def attack(self, seconds: float) -> None:
        """One attack after the other; what it opens stays open as long as the server lets it."""
        attacks: list[Callable[[], None]] = [
            self.idle,
            self.half_header,
            self.half_body,
            self.huge_body,
            self.bomb,
            self.garbage,
            self.idle_put,
            self.huge_ticket,
            self.exploding_lookup,
        ]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(OSError, pa.ArrowException, flight.FlightError):
                attack = self._chance.choice(attacks)
                self.tried[attack.__name__] += 1
                attack()
        for peer in self._open:
            peer.close()

    def _connect(self, port: int) -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._open.append(peer)
        while len(self._open) > MOST_OPEN:
            self._open.popleft().close()
        return peer

    # ---- over HTTP -------------------------------------------------------------------------------------------------
    def idle(self) -> None:
        self._connect(self._chance.choice((self._http_port, self._flight_port)))

    def half_header(self) -> None:
        self._connect(self._http_port).sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX-Half: ")

    def half_body(self) -> None:
        path = self._chance.choice(("/iceberg/v1/namespaces", "/api/v1/heartbeat", "/api/v1/tables"))
        self._connect(self._http_port).sendall(_head(path, BODY_BYTES) + PIECE)

    def huge_body(self) -> None:
        peer = self._connect(self._http_port)
        peer.sendall(_head("/api/v1/heartbeat", 400 << 20))
        for _ in range(40):
            peer.sendall(PIECE)

    def bomb(self) -> None:
        slots = json.dumps({"job": "j", "instance": "i", "slots": 10**30}).encode()
        body = self._chance.choice((DEEP, b"9" * 100_000, slots, b'{"job": NaN}', b"\xff" * 1000))
        peer = self._connect(self._http_port)
        peer.sendall(_head("/api/v1/heartbeat", len(body)) + body)
        peer.recv(1 << 16)

    def garbage(self) -> None:
        peer = self._connect(self._chance.choice((self._http_port, self._flight_port)))
        peer.sendall(self._chance.randbytes(4096))

    # ---- over Flight -----------------------------------------------------------------------------------------------
    def idle_put(self) -> None:
        """A put stream whose headers are sent, and nothing else."""
        named = {
            ":method": "POST",
            ":scheme": "http",
            ":path": "/arrow.flight.protocol.FlightService/DoPut",
            ":authority": "here",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        headers = b"".join(_header(name, value) for name, value in named.items())
        hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"") + _frame(1, 4, 1, headers)
        self._connect(self._flight_port).sendall(hello)

    def huge_ticket(self) -> None:
        with flight.connect(f"grpc://127.0.0.1:{self._flight_port}") as client:
            options = flight.FlightCallOptions(timeout=PATIENCE_S)
            client.do_get(flight.Ticket(b" " * TICKET_BYTES), options).read_all()

    def exploding_lookup(self) -> None:
        options = flight.FlightCallOptions(timeout=PATIENCE_S)
        with flight.connect(f"grpc://127.0.0.1:{self._flight_port}") as client:
            asked = flight.Action("load-table", json.dumps({"table": PK}).encode())
            (told,) = client.do_action(asked, options)
            table = json.loads(told.body.to_pybytes())["table"]
            ticket = {"kind": "lookup", "table": PK, "table_id": table["table_id"], "schema_id": 1, "width": 1}
            raw = json.dumps({**ticket, "bucket": "0", "keys": _exploding_keys()}).encode()
            client.do_get(flight.Ticket(raw), options).read_all()


@cache
def _exploding_keys() -> str:
    """Some kilobytes that unpack into 800 MB."""
    zeros = pa.record_batch([pa.array(memoryview(bytes(8 << 20)).cast("q"), pa.int64())], ["id"])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, zeros.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for _ in range(100):
            writer.write_batch(zeros)
    return base64.b64encode(sink.getvalue()).decode()


def _head(path: str, size: int) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {size}",
        "\r\n",
    )
    return "\r\n".join(lines).encode()


def _frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


def _header(name: str, value: str) -> bytes:
    """HPACK: a literal that is not indexed, in plain text."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def main(arguments: Sequence[str]) -> None:
    http_port, flight_port, seed = map(int, arguments[:3])
    peer = HostilePeer(http_port, flight_port, seed)
    peer.attack(float(arguments[3]))
    print(dict(peer.tried), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
