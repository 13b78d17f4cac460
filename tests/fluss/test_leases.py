# SPDX-License-Identifier: Apache-2.0
"""KV snapshots are leased for as long as a round lasts: renewed by its job's heartbeat, and given back whatever its
end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.errors import SnapshotGone
from lakeward.model import Bucket, InstanceId, JobName
from lakeward.protocol.heartbeat import HeartbeatRequest
from lakeward.spi import KvSnapshot
from lakeward_testing.waiting import wait_until
from tests.fluss.steps import USERS, MakeTable, UpsertRange
from tests.fluss.world import FlussWorld
from tests.kit.fluss.cluster import TEST_SETTINGS, FlussCluster

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

B0 = Bucket("", 0)
BEAT = HeartbeatRequest(job=JobName("holder"), instance=InstanceId("one"))


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[FlussWorld]:
    """KV snapshots every two seconds, one of them kept; leases that are over are noticed within a second."""
    quick = {
        "kv.snapshot.interval": "2s",
        "kv.snapshot.num-retained": "1",
        "kv.snapshot.lease.expiration-check-interval": "1s",
    }
    cluster = FlussCluster(home=tmp_path / "fluss", settings={**TEST_SETTINGS, **quick}).start()
    world = FlussWorld(cluster)
    yield world
    world.close()
    cluster.stop()


def taken(world: FlussWorld, holder: str) -> KvSnapshot | None:
    return world.plugin.store().take_snapshot(world.table("held"), B0, holder)


def read(world: FlussWorld, snapshot: KvSnapshot) -> int:
    return sum(b.num_rows for b in world.plugin.store().read_snapshot(world.table("held"), snapshot))


def test_a_lease_outlives_its_time_while_the_job_beats(hasty: FlussWorld) -> None:
    hasty.plugin.store().snapshots.lease_ms = 4_000
    hasty.produce(
        MakeTable(name="held", schema=USERS, primary_key=("id",), buckets=1, freshness="1h"),
        UpsertRange(table="held", start=0, stop=300, template=("first",)),
    )
    wait_until(lambda: taken(hasty, "round") is not None, what="a KV snapshot")
    held = taken(hasty, "round")
    assert held is not None
    until = time.monotonic() + 12
    turn = 0
    while time.monotonic() < until:
        hasty.plugin.coordinator().heartbeat(BEAT)
        hasty.produce(UpsertRange(table="held", start=0, stop=10, template=(f"turn {turn}",)))
        turn += 1
    newest = taken(hasty, "other")
    assert newest is not None
    assert int(newest.snapshot_id) > int(held.snapshot_id) + 1
    assert read(hasty, held) == 300
    hasty.plugin.store().release_snapshots(hasty.table("held"), "round")
    wait_until(lambda: is_gone(hasty, held), what="the snapshot is gone once it was given back")


def is_gone(world: FlussWorld, snapshot: KvSnapshot) -> bool:
    world.produce(UpsertRange(table="held", start=0, stop=10, template=(f"at {time.monotonic()}",)))
    try:
        read(world, snapshot)
    except SnapshotGone:
        return True
    return False
