# SPDX-License-Identifier: Apache-2.0
"""Rounds that are not plain: tables dropped in work, rounds cut at their limit, other changelogs and codecs, columns
chosen.
"""

from __future__ import annotations

import threading

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeward.errors import TableNotFound
from lakeward.model import Bucket
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward_testing.faults import FaultAction, Faults
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import EVENTS, USERS, Append, Delete, DropTable, MakeTable, Upsert, events
from tests.fluss.world import FlussWorld, ThreadJob

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


def test_a_table_dropped_in_work_fails_that_round_only(world: FlussWorld, rounds: OnDemand) -> None:
    world.produce(
        MakeTable(name="dropped", schema=EVENTS, freshness="1h"), Append(table="dropped", rows=events(0, 100))
    )
    with Faults() as faults:
        pause = faults.arm("round.before-lake-commit", action=FaultAction.PAUSE)
        ends: list[object] = []
        worker = threading.Thread(target=lambda: ends.append(rounds.run("dropped")))
        worker.start()
        pause.wait_reached()
        world.produce(DropTable(table="dropped"))
        pause.release()
        worker.join(120)
    (end,) = ends
    assert isinstance(end, TableFailed)
    with pytest.raises(TableNotFound):
        world.table("dropped")


def test_a_job_survives_a_table_that_is_dropped(lone: FlussWorld) -> None:
    job = ThreadJob(lone.cluster.bootstrap, "survivor")
    try:
        lone.produce(
            MakeTable(name="short_lived", schema=EVENTS, freshness="1s"),
            Append(table="short_lived", rows=events(0, 100)),
        )
        lone.wait_tiered("short_lived")
        successor = MakeTable(name="successor", schema=EVENTS, freshness="1s")
        lone.produce(DropTable(table="short_lived"), successor, Append(table="successor", rows=events(0, 50)))
        lone.wait_tiered("successor")
        assert job.process.poll() is None
    finally:
        job.stop()


def test_a_round_longer_than_its_freshness_is_cut_and_goes_on_at_once(lone: FlussWorld) -> None:
    """Fluss's rule: a round may take as long as the freshness. 1.2 M rows at 1 s and one slot give several snapshots,
    each row once.
    """
    rows = events(0, 60_000)
    lone.produce(
        MakeTable(name="long", schema=EVENTS, buckets=2, freshness="1s"),
        Append(table="long", rows=rows, chunk=20_000, repeat=20),
    )
    job = ThreadJob(lone.cluster.bootstrap, "cut", slots=1)
    try:
        ends = lone.wait_tiered("long", 180)
    finally:
        job.stop()
    found = lone.rows("long")
    assert found.num_rows == 1_200_000 == sum(ends.values())
    for bucket, end in ends.items():
        offsets = found.filter(pc.equal(found.column("__bucket"), bucket.number)).column("__offset").to_numpy()
        assert sorted(offsets.tolist()) == list(range(end))


def test_a_changelog_without_before_images(world: FlussWorld, rounds: OnDemand) -> None:
    wal = {"table.changelog.image": "WAL"}
    world.produce(
        MakeTable(name="wal", schema=USERS, primary_key=("id",), freshness="1h", properties=wal),
        Upsert(table="wal", rows=[{"id": n, "name": f"user {n}"} for n in range(200)]),
    )
    assert isinstance(rounds.run("wal"), TableFinished)
    world.produce(
        Upsert(table="wal", rows=[{"id": n, "name": f"again {n}"} for n in range(0, 250, 2)]),
        Upsert(table="wal", rows=[{"id": n, "name": f"third {n}"} for n in range(0, 250, 4)]),
        Delete(table="wal", keys=[{"id": n} for n in range(0, 200, 5)]),
    )
    assert isinstance(rounds.run("wal"), TableFinished)
    expected = (
        {n: f"user {n}" for n in range(200)}
        | {n: f"again {n}" for n in range(0, 250, 2)}
        | {n: f"third {n}" for n in range(0, 250, 4)}
    )
    expected = {n: name for n, name in expected.items() if n % 5 or n >= 200}
    assert {k: r["name"] for k, r in world.by_key("wal").items()} == expected


@pytest.mark.parametrize("codec", ["ZSTD", "LZ4_FRAME", "NONE"])
def test_every_codec_and_chosen_columns(world: FlussWorld, codec: str) -> None:
    name = f"codec_{codec.lower()}"
    compressed = {"table.log.arrow.compression.type": codec}
    world.produce(
        MakeTable(name=name, schema=EVENTS, buckets=1, freshness="1h", properties=compressed),
        Append(table=name, rows=events(0, 3_000)),
    )
    store, table = world.plugin.store(), world.table(name)
    for columns in (None, ["name"], ["id"], ["name", "id"], []):
        batches = list(store.read_log(table, Bucket("", 0), 10, 2_990, columns))
        wanted = EVENTS.names if columns is None else columns
        assert batches[0].schema.names[: len(wanted)] == list(wanted)
        found = pa.Table.from_batches(batches)
        assert found.column("__offset").to_pylist() == list(range(10, 2_990))
        assert found.select(wanted).to_pylist() == pa.Table.from_batches([events(10, 2_990)]).select(wanted).to_pylist()
