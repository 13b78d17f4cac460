# SPDX-License-Identifier: Apache-2.0
"""A server that dies at each step of storing a group of a source: after its start the group's rows and position are
stored once, together."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.model import TablePath
from lakeward.protocol.auth import Role, Token
from lakeward.protocol.sources import CommitGroup, CreateSource, Frame, FrameKind, GroupFile
from lakeward.server.ingest.sources import SourceDesk
from lakeward.spi import load_lake
from lakeward_testing.faults import FaultAction, Faults
from tests.kit.inprocess import InProcessLakeward

TOKEN = Token(name="ingest", role=Role.WRITE, secret="not checked here")
PATHS = ("db.one", "db.two")
FIRST, SECOND = [1, 2], [3, 4, 5]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[InProcessLakeward]:
    world = InProcessLakeward(tmp_path, load_lake("memory", {"name": tmp_path.name}))
    for path in PATHS:
        world.create(path, "id bigint not null")
    yield world
    world.close()


def desk_of(world: InProcessLakeward) -> SourceDesk:
    return SourceDesk(world.store, world.folder, world.clock)


def to_frame(path: str, kind: FrameKind, **columns: list[int]) -> bytes:
    batch = pa.record_batch({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return Frame(table=TablePath.parse(path), kind=kind).to_bytes(stream.getvalue())


def store(desk: SourceDesk, epoch: int, group: int, ids: list[int]) -> None:
    """The same rows for every table."""
    store_body(desk, epoch, group, b"".join(to_frame(path, FrameKind.APPEND, id=ids) for path in PATHS))


def store_body(desk: SourceDesk, epoch: int, group: int, body: bytes) -> None:
    name = f"group-{group}"
    desk.write("s", name, epoch, 0, body, TOKEN)
    file = GroupFile(name=name, size=len(body))
    desk.commit("s", CommitGroup(epoch=epoch, group=group, state={"at": group}, files=(file,)), TOKEN)


@pytest.mark.parametrize(
    ("point", "hit"),
    [("source.committed", 1), ("source.frame-stored", 1), ("source.frame-stored", 2), ("source.stored", 1)],
)
def test_a_group_is_stored_once_by_a_server_that_died_at(
    world: InProcessLakeward, faults: Faults, point: str, hit: int
) -> None:
    desk = desk_of(world)
    desk.create(CreateSource(name="s", kind="test"), TOKEN)
    epoch = desk.open("s", TOKEN).source.epoch
    store(desk, epoch, 1, FIRST)
    # SystemExit passes every handler, as a kill does.
    fault = faults.arm(point, FaultAction.RAISE, error=SystemExit, hit=hit)
    with pytest.raises(SystemExit):
        store(desk, epoch, 2, SECOND)
    assert fault.acted == 1
    world.restart()
    desk = desk_of(world)
    source = desk.show("s", TOKEN).source
    assert (source.group, source.state) == (2, {"at": 2})
    store(desk, epoch, 2, SECOND)  # the ingest process had no answer, and sends it again
    for path in PATHS:
        assert sorted(world.read(path).to_table().column("id").to_pylist()) == FIRST + SECOND


def test_readers_see_a_group_in_all_buckets_or_in_none(world: InProcessLakeward) -> None:
    """Ends of logs are those of synced rows: one bucket must not be synced for readers before the others."""
    table = world.create("db.wide", "id bigint not null, n bigint", primary_key="id", buckets=4)
    desk, stop, seen = desk_of(world), threading.Event(), set[tuple[int, ...]]()
    desk.create(CreateSource(name="s", kind="test"), TOKEN)
    epoch = desk.open("s", TOKEN).source.epoch

    def ends() -> tuple[int, ...]:
        return tuple(bounds.end for _, bounds in sorted(world.store.bounds(table).items()))

    def read() -> None:
        while not stop.is_set():
            seen.add(ends())

    expected: set[tuple[int, ...]] = {(0, 0, 0, 0)}
    reader = threading.Thread(target=read)
    reader.start()
    for group in range(1, 61):
        body = to_frame("db.wide", FrameKind.UPSERT, id=list(range(40)), n=[group] * 40)
        store_body(desk, epoch, group, body)
        expected.add(ends())
    stop.set()
    reader.join()
    assert len(expected) == 61
    assert seen <= expected
