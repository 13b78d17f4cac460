# SPDX-License-Identifier: Apache-2.0
"""A server that dies at each step of storing a group of a source: after its start the group's rows and position are
stored once, together."""

from __future__ import annotations

import io
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


def to_frames(ids: list[int]) -> bytes:
    """The same rows for every table."""
    batch = pa.record_batch({"id": pa.array(ids, pa.int64())})
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return b"".join(
        Frame(table=TablePath.parse(path), kind=FrameKind.APPEND).to_bytes(stream.getvalue()) for path in PATHS
    )


def store(desk: SourceDesk, epoch: int, group: int, ids: list[int]) -> None:
    name, body = f"group-{group}", to_frames(ids)
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
