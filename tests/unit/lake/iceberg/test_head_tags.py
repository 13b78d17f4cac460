# SPDX-License-Identifier: Apache-2.0
"""Which heads get a tag, and what an expiry by another engine leaves then."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakeward.errors import SnapshotGone
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.headtags import PREFIX, HeadTags
from lakeward.model import SnapshotId, SystemClock, TableInfo, TablePath
from lakeward_testing.clock import ManualClock
from tests.oracle.liveworld import LiveWorld, live_world

KEEP_MS = 60_000


def tags(connection: IcebergConnection, table: TableInfo) -> dict[str, int | None]:
    refs = connection.load(table.path).metadata.refs
    return {name: ref.max_ref_age_ms for name, ref in refs.items() if name.startswith(PREFIX)}


def tiered(world: LiveWorld, row: int) -> SnapshotId:
    world.append("db.t", [{"id": row}])
    world.tier("db.t")
    head = world.lakeward.coordinator.board.find_table(TablePath("db", "t")).with_state[0].committed
    assert head
    snapshot = world.lake.connection.load(TablePath("db", "t")).current_snapshot()
    assert snapshot is not None
    return SnapshotId(str(snapshot.snapshot_id))


def test_a_head_that_could_expire_is_tagged_for_a_while(tmp_path: Path) -> None:
    clock = ManualClock(SystemClock().now_ms())
    with live_world(tmp_path) as world:
        world.create("db.t", "id bigint", **{"iceberg.history.expire.max-snapshot-age-ms": "600000"})
        connection, table = world.lake.connection, world.lakeward.store.load_table(TablePath("db", "t"))
        first = tiered(world, 1)
        held = HeadTags(clock, KEEP_MS)
        held.hold(connection, table, first)
        assert tags(connection, table) == {}, "it is young"
        clock.advance(580)
        held.hold(connection, table, first)
        ((name, age),) = tags(connection, table).items()
        assert name == PREFIX + first
        assert age is not None
        assert age > 580_000 + KEEP_MS
        second = tiered(world, 2)
        loaded = connection.load(table.path)
        loaded.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
        retained = {str(s.snapshot_id) for s in connection.load(table.path).metadata.snapshots}
        assert first in retained, "what answers name stays"
        clock.advance(700)
        held.hold(connection, table, second)
        assert list(tags(connection, table)) == [PREFIX + second], "the older tag's time is over"
        with pytest.raises(SnapshotGone, match="load the table again"):
            HeadTags(clock, KEEP_MS).hold(connection, table, SnapshotId("17"))
