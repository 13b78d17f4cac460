# SPDX-License-Identifier: Apache-2.0
"""Our job sleeps between its lake commit and its word to Fluss, a Flink job takes the table over and goes on, ours
wakes up.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.hot.fluss.coordinatorclient import FlussCoordinatorClient
from lakeward.hot.fluss.lakehistory import Registered
from lakeward.model import Bucket, OffsetMap, SnapshotId
from lakeward.protocol.heartbeat import TableFinished
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, OFFSETS_KEY
from lakeward_testing.faults import FaultAction, Faults
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import EVENTS, Append, MakeTable, events
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

B0 = Bucket("", 0)


def take_over(world: FlussWorld, name: str) -> Path:
    """As the Flink job: it tells of what it finds in the lake, then tiers ten more rows. Its file of offsets."""
    coordinator, table = (
        FlussCoordinatorClient(world.plugin.servers, world.plugin.store(), world.plugin._lake),
        world.table(name),
    )
    lake = world.lake(name).connection.load(table.path)
    found = lake.current_snapshot()
    assert found is not None
    assert found.summary is not None
    coordinator._register(
        table, Registered(SnapshotId(str(found.snapshot_id)), found.summary.additional_properties[OFFSETS_KEY]), {}
    )
    world.produce(Append(table=name, rows=events(50, 60)))
    path = coordinator._write_offsets(table, {B0: 60})
    rows = lake.scan(row_filter="id < 10").to_arrow()
    for column in {"id", "__offset"} & set(rows.column_names):
        at = rows.schema.get_field_index(column)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(range(50, 60), pa.int64()))
    lake.append(rows, snapshot_properties={COMMIT_USER_KEY: COMMIT_USER, OFFSETS_KEY: path})
    head = lake.refresh().current_snapshot()
    assert head is not None
    coordinator._register(table, Registered(SnapshotId(str(head.snapshot_id)), path), {B0: 60})
    return Path(path)


def go_on(world: FlussWorld, rounds: OnDemand, name: str) -> None:
    world.produce(Append(table=name, rows=events(60, 70)))
    assert isinstance(rounds.run(name), TableFinished)
    assert sorted(world.rows(name).column("id").to_pylist()) == list(range(70))
    assert world.committed(name) == world.ends(name)


def test_woken_after_another_job_went_on(world: FlussWorld, rounds: OnDemand) -> None:
    """Told late, Fluss would go back to our snapshot and delete the offsets of the newer one, which nobody could read
    any more.
    """
    world.produce(
        MakeTable(name="zombie", schema=EVENTS, buckets=1, freshness="1h"), Append(table="zombie", rows=events(0, 50))
    )
    late: list[object] = []
    with Faults() as faults:
        pause = faults.arm("round.before-coordinator-commit", action=FaultAction.PAUSE)
        zombie = threading.Thread(target=lambda: late.append(rounds.run("zombie")))
        zombie.start()
        pause.wait_reached()
        offsets = take_over(world, "zombie")
        pause.release()
        zombie.join(120)
    assert isinstance(late[0], TableFinished)
    assert offsets.exists()
    assert world.committed("zombie") == OffsetMap({B0: 60})
    go_on(world, rounds, "zombie")


def test_woken_while_it_tells(world: FlussWorld, rounds: OnDemand) -> None:
    """It has looked at the lake already: Fluss goes back then, but no file that a newer snapshot needs is deleted."""
    world.produce(
        MakeTable(name="zombie2", schema=EVENTS, buckets=1, freshness="1h"), Append(table="zombie2", rows=events(0, 50))
    )
    taken_over = list[Path]()

    def sleep(_facts: dict[str, Any]) -> bool:
        taken_over.append(take_over(world, "zombie2"))
        return False

    with Faults() as faults:
        faults.arm("fluss.before-register", when=sleep)
        assert isinstance(rounds.run("zombie2"), TableFinished)
    (offsets,) = taken_over
    assert offsets.exists()
    go_on(world, rounds, "zombie2")
