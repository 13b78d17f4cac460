# SPDX-License-Identifier: Apache-2.0
"""What Fluss 1.0 does that 0.9.1 does not: batches with statistics, and snapshots of its Flink job without a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.errors import InvalidTable
from lakeward.hot.fluss.tiernow import tier_now
from lakeward.model import OffsetMap, TablePath
from lakeward.protocol.heartbeat import TableFinished
from lakeward.verify import verify_table
from lakeward_testing.waiting import wait_until
from tests.fluss.flink import FlinkTieringJob, append_events, set_properties
from tests.fluss.kinds import scan_kv
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, EVENTS, USERS, Append, Delete, MakeTable, Upsert, events
from tests.fluss.test_handover import LEASE_S, restart_coordinator
from tests.fluss.test_tiering import first_answer
from tests.fluss.world import FlussWorld, ThreadJob

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

MAGIC_AT = 12
"""Behind a batch's first offset and its length."""


def test_batches_of_magic_one(world: FlussWorld, rounds: OnDemand) -> None:
    """Fluss's own client puts statistics into its batches; pyfluss's beside them have none."""
    counted = {"table.statistics.columns": "*"}
    world.produce(MakeTable(name="counted", schema=EVENTS, buckets=1, freshness="1h", properties=counted))
    append_events(world.cluster, DATABASE, "counted", 0, 500)
    assert first_answer(world, "counted")["records"][MAGIC_AT] == 1
    world.produce(Append(table="counted", rows=events(500, 700)))
    assert isinstance(rounds.run("counted"), TableFinished)
    assert world.committed("counted") == world.ends("counted")
    found = world.rows("counted").sort_by("__offset").select(EVENTS.names)
    assert found.to_pylist() == events(0, 700).to_pylist()
    assert not verify_table(world.plugin, TablePath(DATABASE, "counted"), deep=True).is_failure


def test_a_snapshot_of_the_flink_job_without_a_file(lone: FlussWorld, tmp_path: Path) -> None:
    """Deletes of keys that are not there: offsets move on, and there is no record. Ours goes on from there."""
    lone.produce(
        MakeTable(name="quiet", schema=USERS, primary_key=("id",), buckets=1, freshness="5s"),
        Upsert(table="quiet", rows=[{"id": n, "name": "stays"} for n in range(20)]),
    )
    flink = FlinkTieringJob(lone.cluster, tmp_path / "flink.log")
    try:
        lone.wait_tiered("quiet", LEASE_S)
        delete_nothing(lone)
        lone.wait_tiered("quiet", LEASE_S)
    finally:
        flink.stop()
    head = lone.lake("quiet").open_reader(lone.table("quiet")).load_snapshot()
    assert head is not None
    assert int(head.summary.get("added-data-files", "0")) == 0
    assert OffsetMap(head.offsets) == lone.ends("quiet")
    restart_coordinator(lone, "quiet")
    ours = ThreadJob(lone.cluster.bootstrap, "ours")
    try:
        delete_nothing(lone)
        lone.produce(Upsert(table="quiet", rows=[{"id": 3, "name": "ours"}]))
        lone.wait_tiered("quiet", LEASE_S)
    finally:
        ours.stop()
    assert {k: r["name"] for k, r in lone.by_key("quiet").items()} == {
        n: "ours" if n == 3 else "stays" for n in range(20)
    }
    assert {r["id"] for r in scan_kv(lone, "quiet")} == set(range(20))
    assert not verify_table(lone.plugin, TablePath(DATABASE, "quiet"), deep=True).is_failure


NEWER = {
    "aged": {"table.kv.ttl": "7d"},
    "elsewhere": {"table.datalake.database-name": "archive"},
    "renamed": {"table.datalake.table-name": "orders"},
    "laid_out": {"table.kv.value-layout-version": "3"},
}
"""What the client of 1.0.0 knows and a server built from the tree before it refuses: put where the server finds it."""


def test_what_is_not_supported_is_refused_at_the_table_once(lone: FlussWorld) -> None:
    """Handed out by Fluss, named in the log with the reason, and given back; the job goes on with its own."""
    upserts = [Upsert(table=name, rows=[{"id": n, "name": name} for n in range(30)]) for name in NEWER]
    make = [MakeTable(name=name, schema=USERS, primary_key=("id",), buckets=1, freshness="1s") for name in NEWER]
    lone.produce(*make, *upserts, MakeTable(name="own", schema=EVENTS, buckets=1, freshness="1s"))
    for name, properties in NEWER.items():
        set_properties(lone.cluster, DATABASE, name, properties)
    ours = ThreadJob(lone.cluster.bootstrap, "ours")
    try:
        for turn in range(3):
            lone.produce(Append(table="own", rows=events(10 * turn, 10 * turn + 10)))
            lone.wait_tiered("own", LEASE_S)
        said = {name: f"{DATABASE}.{name} is left to other jobs: " for name in NEWER}
        wait_until(lambda: all(words in ours.log for words in said.values()), limit_s=LEASE_S, what="four refusals")
        lone.produce(Append(table="own", rows=events(30, 40)))
        lone.wait_tiered("own", LEASE_S)
        for name, words in said.items():
            assert ours.log.count(words) == 1
            ((field, value),) = NEWER[name].items()
            assert f"{words}table {DATABASE}.{name}: {field} '{value}': " in ours.log
            with pytest.raises(InvalidTable, match=f"{field} '{value}'"):
                tier_now(lone.plugin, TablePath(DATABASE, name), 10.0)
            assert not lone.committed(name)
    finally:
        ours.stop()
    assert sorted(lone.rows("own").column("id").to_pylist()) == list(range(40))


def delete_nothing(world: FlussWorld) -> None:
    before = world.ends("quiet")
    world.produce(Delete(table="quiet", keys=[{"id": n} for n in range(100, 130)]))
    assert world.ends("quiet") != before
