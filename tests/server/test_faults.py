# SPDX-License-Identifier: Apache-2.0
"""What goes wrong between clients and a server: cut connections, kills, floods, garbage. Nothing is lost, doubled or
stuck.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from lakeward.client import Client, Table, connect
from lakeward.config import resolve
from lakeward.errors import DataFolderLocked, InvalidRequest, LakewardError, ServerUnavailable, TimedOut, from_wire
from lakeward.model import Bucket
from lakeward.protocol.flight import BatchHeader, PutCommand, PutKind, to_bytes
from lakeward.protocol.tables import ServerInfo
from lakeward_testing.proxy import CuttingProxy
from lakeward_testing.waiting import wait_until
from tests.kit.serverprocess import ServerProcess

StartServer = Callable[..., ServerProcess]
COLUMNS = "id BIGINT NOT NULL, name STRING"


def ids(table: Table) -> list[int]:
    return sorted(row["id"] for batch in table.subscribe(idle_s=0.0) for row in batch.to_pylist())


def through(client: Client, proxy: CuttingProxy) -> Client:
    """The client with its Flight connection led through the proxy."""
    told = client.info()
    info = ServerInfo(**{**vars(told), "flight_uri": f"grpc://127.0.0.1:{proxy.port}"})
    client.server.info = lambda *, fresh=False: info  # type: ignore[method-assign]
    return client


def test_writes_through_cut_connections_are_stored_exactly_once(shared_server: ServerProcess) -> None:
    plain = shared_server.client()
    plain.create_table("cut.t", COLUMNS, buckets=2, bucket_key="id")
    flight_port = int(plain.info().flight_uri.rpartition(":")[2])
    passed = 0

    def cut_now_and_then(from_server: bool, count: int) -> None:
        """Every 60 kB, in the middle of whatever is under way, before the bytes are handed on."""
        nonlocal passed
        passed += count
        if passed > 60_000:
            passed = 0
            threading.Thread(target=proxy.cut).start()

    proxy = CuttingProxy(("127.0.0.1", flight_port), cut_now_and_then)
    client = through(shared_server.client(), proxy)
    table = client.table("cut.t")
    name = "x" * 100
    with table.writer(max_rows=100, linger_s=0.0) as writer:
        for first in range(0, 6_000, 50):
            writer.append([{"id": n, "name": name} for n in range(first, first + 50)])
    assert proxy.cuts > 3
    assert ids(plain.table("cut.t")) == list(range(6_000))
    rows = table.subscribe(
        idle_s=20.0, columns=["id"]
    ).rows()  # cut connections are tried again: on a busy machine that takes a while
    assert sorted(row["id"] for row in islice(rows, 6_000)) == list(range(6_000))
    proxy.close()


def hurried(url: str) -> Client:
    """Tries again for half a second, where the default is two minutes."""
    return connect(url, config=resolve(arguments={"client.writer.retry-timeout": "500 ms"}))


def test_a_read_without_a_server_says_what_where_and_what_next(server: ServerProcess) -> None:
    with hurried(server.url) as client:
        table = client.create_table("d.t", COLUMNS)
        table.append([{"id": 1}])
        server.kill()
        words = rf"no answer from {server.url} to a read of d\.t: .*refused.*`lakeward server`"
        reads: list[Callable[[], Any]] = [
            table.read,
            lambda: client.read("d.t"),
            lambda: table.read(mode="lake"),
            lambda: table.read(mode="hot"),
        ]
        for read in reads:
            with pytest.raises(ServerUnavailable, match=words):
                read()


def test_a_server_that_dies_in_the_middle_of_a_read_is_told_too(server: ServerProcess) -> None:
    """Also to engines that take the rows as an Arrow stream: they know no typed errors, but the words are the same."""
    with hurried(server.url) as client:
        table = client.create_table("d.t", COLUMNS)
        for first in range(0, 40_000, 2_000):
            table.append([{"id": n, "name": "x" * 1_000} for n in range(first, first + 2_000)])
        plain, streamed = iter(table.read()), table.read().reader()
        next(plain)
        streamed.read_next_batch()
        server.kill()
        with pytest.raises(
            ServerUnavailable, match=rf"no answer from {server.url} to a read of d\.t .*`lakeward server`"
        ):
            list(plain)
        with pytest.raises(Exception, match=r"to a read of d\.t"):
            streamed.read_all()


def test_a_read_goes_on_when_its_server_comes_back(server: ServerProcess) -> None:
    client = server.client()
    table = client.create_table("d.t", COLUMNS)
    for first in range(0, 40_000, 2_000):
        table.append([{"id": n, "name": "x" * 1_000} for n in range(first, first + 2_000)])
    batches = iter(table.read())
    rows = next(batches).column("id").to_pylist()
    server.kill()
    back = threading.Thread(target=server.restart)
    back.start()
    for batch in batches:
        rows += batch.column("id").to_pylist()
    back.join()
    assert sorted(rows) == list(range(40_000)), "every row once"


def test_clients_go_on_after_a_kill_and_after_a_stop(server: ServerProcess) -> None:
    client = server.client()
    log = client.create_table("d.log", COLUMNS)
    keyed = client.create_table("d.keyed", "k INT, v INT", primary_key="k")
    acknowledged: list[int] = []
    running = threading.Event()
    running.set()

    def produce() -> None:
        n = 0
        while running.is_set():
            log.append({"id": n})
            keyed.upsert({"k": 1, "v": n})
            acknowledged.append(n)
            n += 1

    producer = threading.Thread(target=produce)
    producer.start()
    follower = client.table("d.log").subscribe(idle_s=60.0)
    followed: list[int] = []
    try:
        for end in (server.kill, server.stop, None):
            reached = len(acknowledged) + 20
            wait_until(lambda reached=reached: len(acknowledged) >= reached, what="writes")  # type: ignore[misc]
            if end is not None:
                end()
                server.restart()
    finally:
        running.clear()
        producer.join()
    while len(followed) < len(acknowledged):
        followed += next(follower).column("id").to_pylist()
    assert followed == acknowledged == list(range(len(acknowledged)))
    assert ids(log) == acknowledged
    assert keyed.lookup({"k": 1}).column("v").to_pylist() == [acknowledged[-1]]


KILLS = 3


@pytest.mark.soak
def test_a_stream_with_many_batches_under_way_survives_kills(server: ServerProcess) -> None:
    """Acknowledgements trail behind the puts of a stream: none may come before its rows are safe, and none of them
    twice.
    """
    client = server.client()
    log = client.create_table("d.log", COLUMNS, buckets=2, bucket_key="id")
    keyed = client.create_table("d.keyed", "k INT, v INT", primary_key="k")
    sent, due = 0, threading.Semaphore(0)

    def produce() -> None:
        nonlocal sent
        with log.writer(max_rows=20, linger_s=0.0) as logs, keyed.writer(max_rows=20, linger_s=0.0) as keys:
            for _ in range(KILLS * 40):
                due.acquire()
                logs.append([{"id": n} for n in range(sent, sent + 20)])
                keys.upsert([{"k": n % 7, "v": n} for n in range(sent, sent + 20)])
                sent += 20

    producer = threading.Thread(target=produce)
    producer.start()
    for kill in range(KILLS):
        due.release(40)
        wait_until(lambda kill=kill: sent >= 20 * (40 * kill + 10), what="writes")  # type: ignore[misc]
        server.kill()
        server.restart()
    producer.join()
    assert ids(log) == list(range(sent))
    newest = {n % 7: n for n in range(sent)}
    assert {r["k"]: r["v"] for r in keyed.lookup([{"k": k} for k in range(7)]).to_pylist()} == newest


def test_a_stopped_server_keeps_everything_and_exits_with_zero(server: ServerProcess) -> None:
    client = server.client()
    table = client.create_table("d.t", COLUMNS, properties={"table.log.fsync": "never"})
    table.append([{"id": n} for n in range(10)])
    assert server.stop() == 0
    server.restart()
    assert ids(table) == list(range(10))
    table.append({"id": 10})
    assert ids(table) == list(range(11))


def test_a_second_server_on_the_folder_refuses_to_start(shared_server: ServerProcess) -> None:
    with shared_server.client() as client:
        tables = client.list_tables()
    command = [sys.executable, "-m", "lakeward.cli", "server", "--port", "0", "--flight-port", "0"]
    command += ["--data", str(shared_server.data)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert str(shared_server.data) in ended.stderr
    assert "in use" in ended.stderr
    assert "Traceback" not in ended.stderr
    with shared_server.client() as client:
        assert client.list_tables() == tables
    assert DataFolderLocked.code == "data-folder-locked"


def test_a_port_in_use_is_said_in_words(shared_server: ServerProcess) -> None:
    flight_port = int(shared_server.client().info().flight_uri.rpartition(":")[2])
    other = shared_server.data.with_name("other")
    for second in (ServerProcess(other, port=shared_server.port), ServerProcess(other, flight_port=flight_port)):
        with pytest.raises(TimedOut, match="cannot listen") as refused:
            second.start()
        assert "Traceback" not in refused.value.state


class Raw:
    """A peer that speaks Flight and nothing of ours."""

    def __init__(self, client: Client) -> None:
        self.client = flight.FlightClient(client.info().flight_uri)

    def put(self, command: bytes, schema: pa.Schema, batches: list[tuple[pa.RecordBatch, bytes]]) -> None:
        writer, reader = self.client.do_put(flight.FlightDescriptor.for_command(command), schema)
        try:
            for batch, header in batches:
                writer.write_with_metadata(batch, header)
            writer.done_writing()
            while reader.read() is not None:
                pass
        finally:
            writer.close()

    def error_of(self, call: Callable[[], Any]) -> LakewardError:
        with pytest.raises((flight.FlightError, pa.ArrowException)) as raised:
            call()
        details = getattr(raised.value, "extra_info", b"")
        assert details, f"no typed error: {raised.value!r}"
        assert b"Traceback" not in details
        return from_wire(json.loads(details))


def test_garbage_is_refused_and_the_connection_lives_on(shared_server: ServerProcess) -> None:
    client = shared_server.client()
    table = client.create_table("garbage.t", COLUMNS)
    raw = Raw(client)
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    good = pa.record_batch([pa.array([1]), pa.array(["x"])], schema=schema)
    command = to_bytes(
        PutCommand(table=table.info.path, table_id=table.info.table_id, kind=PutKind.APPEND, schema_id=1)
    )
    header = to_bytes(BatchHeader(bucket=Bucket("", 0)))
    backwards = pa.py_buffer(struct.pack("<3i", 0, 5, 3))
    torn = pa.record_batch(
        [pa.array([1, 2]), pa.StringArray.from_buffers(2, backwards, pa.py_buffer(b"abcde"))], schema=schema
    )
    not_text = pa.StringArray.from_buffers(1, pa.py_buffer(b"\x00\x00\x00\x00\x01\x00\x00\x00"), pa.py_buffer(b"\xff"))
    calls: list[Callable[[], Any]] = [
        lambda: raw.put(b"not json", schema, [(good, header)]),
        lambda: raw.put(b"[]", schema, [(good, header)]),
        lambda: raw.put(command, schema, [(good, b"\xff\xfe")]),
        lambda: raw.put(command, schema, [(good, to_bytes(BatchHeader(bucket=Bucket("", 9))))]),
        lambda: raw.put(command, pa.schema([("id", pa.int32())]), []),
        lambda: raw.put(command, schema, [(torn, header)]),
        lambda: raw.put(command, schema, [(pa.record_batch([pa.array([1]), not_text], schema=schema), header)]),
        lambda: raw.client.do_get(flight.Ticket(b"{}")).read_all(),
        lambda: list(raw.client.do_action(flight.Action("nothing", b""))),
        lambda: list(raw.client.do_action(flight.Action("bounds", b"{"))),
    ]
    for call in calls:
        assert isinstance(raw.error_of(call), InvalidRequest)
    raw.put(command, schema, [(good, header)])
    assert ids(table) == [1]
    raw.client.close()


def test_a_batch_over_the_limit_is_refused_and_the_connection_lives_on(start_server: StartServer) -> None:
    server = start_server(settings={"server.request.max-size": "1 mb"})
    client = server.client()
    table = client.create_table("d.t", COLUMNS)
    sender = table.new_sender(PutKind.APPEND, None)
    big = pa.record_batch({"id": pa.array([1], pa.int64()), "name": ["x" * 2_000_000]})
    with pytest.raises(InvalidRequest, match="at most"):
        sender.send([(Bucket("", 0), big)])
    table.append([{"id": n, "name": "x" * 100_000} for n in range(50)])
    assert ids(table) == list(range(50))
    with pytest.raises(InvalidRequest, match="at most"):
        table.append({"id": 99, "name": "x" * 2_000_000})
    sender.close()


def test_a_flood_of_producers_is_slowed_down_and_nothing_is_lost(start_server: StartServer) -> None:
    server = start_server(settings={"server.memory.max-in-flight": "1 mb", "server.request.max-size": "1 mb"})
    client = server.client()
    client.create_table("d.t", COLUMNS)
    rows = pa.table({"id": list(range(2_000)), "name": ["x" * 200] * 2_000})

    def produce() -> None:
        with server.client() as mine:
            table = mine.table("d.t")
            with table.writer(max_rows=2_000) as writer:
                for _ in range(10):
                    writer.append(rows)

    producers = [threading.Thread(target=produce) for _ in range(6)]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()
    assert sum(b.end for b in client.table("d.t").bounds().values()) == 6 * 10 * 2_000
