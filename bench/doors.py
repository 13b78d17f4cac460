# SPDX-License-Identifier: Apache-2.0
"""Flight as another tree serves it and as this one does, turn by turn in one run: the same client, store and rows.

`python -m bench.doors OTHER_TREE [TURNS]`: the other is a checkout, for instance `git worktree add --detach ../gate
c531e115`, the last one with a gate before Flight. Prints medians; stores nothing.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.flight as flight

import lakeward
from bench.hot_store import INTERVAL, LOG, command_of, end_of, headed, produce, read_all
from bench.hot_store_pk import make_batches
from lakeward.model import Bucket, JobName, new_instance_id
from lakeward.protocol.flight import log_ticket, to_bytes
from lakeward.protocol.heartbeat import HeartbeatRequest
from lakeward.protocol.routes import HEARTBEAT, PROTOCOL, PROTOCOL_HEADER

ROWS, SMALL, HALF_SENT = 1_000_000, 300, 40
BODY_BYTES = 14 << 20


@dataclass
class Door:
    name: str
    port: int
    process: psutil.Process

    def processes(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def cpu_s(self) -> float:
        return float(sum(sum(p.cpu_times()[:2]) for p in self.processes()))

    def memory_mb(self) -> float:
        return float(sum(p.memory_info().rss for p in self.processes()) / 1e6)


@contextmanager
def serving(name: str, tree: Path, folder: Path) -> Iterator[Door]:
    """`bench.hot_peers store` of a tree; of several ports the first is the one that a server would have."""
    paths = os.pathsep.join((str(tree), str(tree / "src")))
    command = [sys.executable, "-m", "bench.hot_peers", "store", str(folder)]
    pipe, variables = subprocess.PIPE, {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen(command, cwd=tree, env=variables, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield Door(name, int(process.stdout.readline().split()[0]), psutil.Process(process.pid))
    finally:
        process.stdin.close()
        process.wait(120)
        process.stdout.close()


def small_puts(door: Door, count: int, pause_s: float = 0.0) -> list[float]:
    """Milliseconds of 1-row puts, one after the other."""
    one = make_batches(np.arange(1, dtype=np.int64), 0)[0]
    with flight.FlightClient(f"grpc://127.0.0.1:{door.port}") as client:
        writer, reader = client.do_put(command_of(INTERVAL), one.schema)
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            writer.write_with_metadata(one, headed(0))
            reader.read()
            times.append((time.perf_counter() - begin) * 1e3)
            time.sleep(pause_s)
        writer.close()
    return times


def read_by(door: Door, ticket: bytes, readers: int) -> float:
    def read() -> None:
        with flight.FlightClient(f"grpc://127.0.0.1:{door.port}") as client:
            read_all(client, ticket)

    threads = [threading.Thread(target=read) for _ in range(readers)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def beside_a_reader(door: Door, ticket: bytes) -> list[float]:
    """1-row puts while another process reads at full speed, as heartbeats meet it."""
    code = "import sys\nfrom bench.doors import read_on\nread_on(int(sys.argv[1]), bytes.fromhex(sys.argv[2]))"
    reader = subprocess.Popen([sys.executable, "-c", code, str(door.port), ticket.hex()], stdout=subprocess.PIPE)
    assert reader.stdout is not None
    reader.stdout.readline()
    try:
        return small_puts(door, SMALL, 0.005)
    finally:
        reader.kill()
        reader.wait()
        reader.stdout.close()


def read_on(port: int, ticket: bytes) -> None:
    with flight.FlightClient(f"grpc://127.0.0.1:{port}") as client:
        while True:
            read_all(client, ticket)
            print("read", flush=True)


def heartbeats(tree: Path, folder: Path) -> list[float]:
    """Milliseconds of heartbeats over HTTP at a server of that tree, while a client reads a table at full speed."""
    ready, paths = folder.with_suffix(".ready"), os.pathsep.join((str(tree), str(tree / "src")))
    command = [sys.executable, "-m", "lakeward.cli", "server", "--port", "0", "--data", str(folder), "--ready-file"]
    with folder.with_suffix(".log").open("wb") as log:
        variables = {**os.environ, "PYTHONPATH": paths}
        process = subprocess.Popen([*command, str(ready)], cwd=tree, env=variables, stdout=log, stderr=log)
    try:
        while not ready.exists():
            if process.poll() is not None:
                raise RuntimeError(folder.with_suffix(".log").read_text())
            time.sleep(0.05)
        url = ready.read_text().strip()
        with lakeward.connect(url) as client:
            table = client.create_table("bench.read", "id bigint, name string")
            ids = np.arange(ROWS)
            table.append(pa.table({"id": ids, "name": pa.array(ids).cast(pa.string())}))
            reader = subprocess.Popen([sys.executable, "-c", _READ_ON, url, str(ROWS)], stdout=subprocess.PIPE)
            assert reader.stdout is not None
            reader.stdout.readline()
            try:
                return beat(url)
            finally:
                reader.kill()
                reader.wait()
                reader.stdout.close()
    finally:
        process.terminate()
        process.wait(120)


_READ_ON = """
import sys, lakeward
with lakeward.connect(sys.argv[1]) as client:
    while True:
        count = 0
        for batch in client.table("bench.read").subscribe():
            count += batch.num_rows
            if count >= int(sys.argv[2]):
                break
        print("read", flush=True)
"""


def beat(url: str) -> list[float]:
    request = HeartbeatRequest(job=JobName("bench"), instance=new_instance_id())
    body, address = to_bytes(request), urlsplit(url)
    connection, times = HTTPConnection(str(address.hostname), address.port), []
    headers = {"Content-Type": "application/json", PROTOCOL_HEADER: str(PROTOCOL)}
    for _ in range(SMALL):
        begin = time.perf_counter()
        connection.request("POST", HEARTBEAT, body, headers)
        answer = connection.getresponse()
        answer.read()
        times.append((time.perf_counter() - begin) * 1e3)
        if answer.status != 200:
            raise RuntimeError(f"heartbeat: {answer.status}")
        time.sleep(0.005)
    connection.close()
    return times


def half_sent(door: Door) -> float:
    """Megabytes that the server grew by while it holds as many messages that are not whole."""

    def send(peers: ExitStack) -> None:
        peer = peers.enter_context(socket.create_connection(("127.0.0.1", door.port), timeout=5))
        fields = (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/arrow.flight.protocol.FlightService/DoGet"),
            (b":authority", b"x"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
        block = b"".join(b"\0" + bytes([len(n)]) + n + bytes([len(v)]) + v for n, v in fields)
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"") + _frame(1, 4, 1, block))
        _send_body(peer, b"\0" + BODY_BYTES.to_bytes(4, "big") + bytes(BODY_BYTES - 100))

    before = door.memory_mb()
    with ExitStack() as peers:
        for _ in range(HALF_SENT):
            send(peers)
        time.sleep(1.0)
        return door.memory_mb() - before


def _send_body(peer: socket.socket, left: bytes) -> None:
    """As fast as the windows of stream 1 and of the connection let it; ends where they stay shut."""
    windows, initial, heard = {0: 65_535, 1: 65_535}, 65_535, b""
    peer.settimeout(0.3)
    while left:
        size = min(16_384, len(left), *windows.values())
        if size > 0:
            peer.sendall(_frame(0, 0, 1, left[:size]))
            left = left[size:]
            windows = {stream: window - size for stream, window in windows.items()}
            continue
        try:
            piece = peer.recv(65_536)
        except TimeoutError:
            return
        if not piece:
            return
        heard += piece
        while len(heard) >= 9 and len(heard) >= 9 + int.from_bytes(heard[:3], "big"):
            size, kind, flags, stream = int.from_bytes(heard[:3], "big"), heard[3], heard[4], heard[8]
            payload, heard = heard[9 : 9 + size], heard[9 + size :]
            if kind == 8:
                windows[stream] += int.from_bytes(payload, "big")
            elif kind == 4 and not flags & 1:
                for at in range(0, size, 6):
                    if payload[at : at + 2] == b"\0\4":
                        told = int.from_bytes(payload[at + 2 : at + 6], "big")
                        windows[1] += told - initial
                        initial = told
                peer.sendall(_frame(4, 1, 0, b""))
            elif kind == 6 and not flags & 1:
                peer.sendall(_frame(6, 1, 0, payload))
            elif kind in (3, 7):
                return


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def compare(doors: Sequence[Door], turns: int, what: str, unit: str, measure: Callable[[Door], float]) -> None:
    """The figures of each door and the median of the turns' ratios, with the CPU seconds of the servers."""
    figures: dict[str, list[float]] = {door.name: [] for door in doors}
    cpu: dict[str, list[float]] = {door.name: [] for door in doors}
    for turn in range(turns + 1):
        for door in doors if turn % 2 else reversed(doors):
            before = door.cpu_s()
            figure = measure(door)
            if turn:  # the first warms up
                figures[door.name].append(figure)
                cpu[door.name].append(door.cpu_s() - before)
    other, ours = (d.name for d in doors)
    ratio = statistics.median(b / a for a, b in zip(figures[other], figures[ours], strict=True))
    medians = {name: statistics.median(values) for name, values in figures.items()}
    spent = {name: statistics.median(values) for name, values in cpu.items()}
    shown = ", ".join(f"{name} {medians[name]:.3f} {unit} (CPU {spent[name]:.2f} s)" for name in medians)
    print(f"{what}: {shown}; {ours}/{other} {ratio:.2f}", flush=True)


def main(other: Path, turns: int) -> None:
    batches = make_batches(np.arange(ROWS, dtype=np.int64), 0)
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        trees = (("other", other), ("this", Path(__file__).parents[1]))
        doors = [stack.enter_context(serving(name, tree.resolve(), Path(temporary) / name)) for name, tree in trees]
        tickets = {}
        for door in doors:
            produce(door.port, command_of(LOG), batches, headed)
            with flight.FlightClient(f"grpc://127.0.0.1:{door.port}") as client:
                tickets[door.name] = to_bytes(log_ticket(LOG, Bucket("", 0), 0, end_of(client, LOG)))

        def percentile(times: list[float], percent: int) -> float:
            return statistics.quantiles(times, n=100)[percent - 1]

        for what, measure in (
            ("append, 2 producers", lambda d: produce(d.port, command_of(INTERVAL), batches, headed)),
            ("read, 1 reader", lambda d: read_by(d, tickets[d.name], 1)),
            ("read, 4 readers", lambda d: read_by(d, tickets[d.name], 4)),
        ):
            compare(doors, turns, what, "s", measure)
        for percent in (50, 99):
            what = f"1-row put p{percent}"
            compare(doors, turns, what, "ms", lambda d, p=percent: percentile(small_puts(d, SMALL), p))  # type: ignore[misc]
        compare(
            doors,
            turns,
            "1-row put beside a reader p99",
            "ms",
            lambda d: percentile(beside_a_reader(d, tickets[d.name]), 99),
        )
        beats: dict[str, list[float]] = {name: [] for name, _ in trees}
        for turn in range(turns):
            for name, tree in trees:
                beats[name] += heartbeats(tree.resolve(), Path(temporary) / f"beats-{name}-{turn}")
        shown = ", ".join(f"{name} {percentile(times, 99):.3f} ms" for name, times in beats.items())
        print(f"heartbeat over HTTP beside a reader p99: {shown}", flush=True)
        for door in doors:
            before, grown = door.memory_mb(), half_sent(door)
            print(f"{door.name}: memory {before:.0f} MB; {HALF_SENT} half-sent tickets: +{grown:.0f} MB", flush=True)


if __name__ == "__main__":
    pa.set_cpu_count(2)
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5)
