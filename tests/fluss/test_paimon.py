# SPDX-License-Identifier: Apache-2.0
"""Tables of a Fluss cluster whose lake is Paimon: our rounds alone, and in turns with Fluss's own Flink job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.config.java import load_java
from lakeward.errors import LakewardError
from lakeward.hot.fluss.handout.compactions import LOOK_ROUNDS
from lakeward.protocol.heartbeat import TableFinished
from lakeward.read.arrow import read, request_of
from lakeward.verify import verify_table
from lakeward.verify.certificate import CertificateVerdict
from lakeward_testing.waiting import wait_until
from tests.fluss.conftest import JARS_LIMIT_S
from tests.fluss.flink import FlinkTieringJob
from tests.fluss.ondemand import OnDemand
from tests.fluss.paimonworld import PaimonWorld
from tests.fluss.steps import (
    DATABASE,
    EVENTS,
    USERS,
    Append,
    Delete,
    LakeSnapshotOf,
    MakePartition,
    MakeTable,
    Upsert,
    events,
)
from tests.fluss.test_handover import LEASE_S, Load, work_both_at_once
from tests.fluss.test_reconcile import stop_behind, take_over_ahead
from tests.fluss.test_tiering import ALL_TYPES, typed_row
from tests.fluss.test_types import NESTED, ROWS, as_read
from tests.fluss.world import ThreadJob
from tests.kit.fluss.cluster import TEST_SETTINGS, FlussCluster
from tests.kit.fluss.jars import SERVER, load_jars, paimon_plugin

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

DAILY = pa.schema([*USERS, pa.field("day", pa.string(), nullable=False)])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaimonWorld]:
    try:
        load_java()
        load_jars((*SERVER, *paimon_plugin()), limit_s=JARS_LIMIT_S)
    except LakewardError as error:
        pytest.skip(f"no Fluss cluster with a Paimon lake can be started on this machine: {error}")
    cluster = FlussCluster(home=tmp_path_factory.mktemp("paimon"), settings=TEST_SETTINGS, lake="paimon")
    try:
        made = PaimonWorld(cluster.start())
        yield made
        made.close()
    finally:
        cluster.stop()


@pytest.fixture
def rounds(world: PaimonWorld) -> Iterator[OnDemand]:
    made = OnDemand(world)
    yield made
    made.close()


def test_a_log_table_is_tiered_round_by_round(world: PaimonWorld, rounds: OnDemand) -> None:
    """Each row once; the snapshot says what Fluss's own job says, and Fluss knows it."""
    world.produce(MakeTable(name="log", schema=EVENTS, freshness="1h"), Append(table="log", rows=events(0, 300)))
    assert isinstance(rounds.run("log"), TableFinished)
    world.produce(Append(table="log", rows=events(300, 500)))
    assert isinstance(rounds.run("log"), TableFinished)
    found = world.rows("log")
    assert sorted(found.column("id").to_pylist()) == list(range(500))
    ends = world.wait_tiered("log")
    for bucket, end in ends.items():
        rows = [r["__offset"] for r in found.to_pylist() if r["__bucket"] == bucket.number]
        assert sorted(rows) == list(range(end))
    snapshot = world.paimon("log").connection.load(world.table("log").path).snapshot_manager().get_latest_snapshot()
    assert (snapshot.commit_user, snapshot.commit_identifier) == ("__fluss_lake_tiering", 2**63 - 1)
    assert Path(snapshot.properties["fluss-offsets"].removeprefix("file:")).exists()
    (known,) = world.produce(LakeSnapshotOf(table="log"))
    assert known == (snapshot.id, {(None, b.number): end for b, end in ends.items()})


def users(table: str, rows: dict[int, str], **more: str) -> Upsert:
    return Upsert(table=table, rows=[{"id": n, "name": name, **more} for n, name in rows.items()])


def names(world: PaimonWorld, table: str) -> dict[int, str]:
    return {k: r["name"] for k, r in world.by_key(table).items()}


def union(world: PaimonWorld, table: str) -> dict[int, str]:
    found = pa.Table.from_batches(list(read(world.plugin, request_of(f"{DATABASE}.{table}")))).to_pylist()
    assert len({r["id"] for r in found}) == len(found)
    return {r["id"]: r["name"] for r in found}


def test_changes_of_a_pk_table_are_merged_in_the_order_of_its_log(world: PaimonWorld, rounds: OnDemand) -> None:
    """Fluss sets no `sequence.field`: a key's last change wins by the order in which it was written, over rounds and
    within one, larger than a sub-split would be."""
    first = {n: f"user {n}" for n in range(2_000)}
    world.produce(MakeTable(name="pk", schema=USERS, primary_key=("id",), freshness="1h"), users("pk", first))
    assert isinstance(rounds.run("pk"), TableFinished)
    second, third = {n: f"second {n}" for n in range(0, 2_000, 2)}, {n: f"third {n}" for n in range(0, 2_000, 3)}
    world.produce(users("pk", second), users("pk", third), Delete(table="pk", keys=[{"id": n} for n in range(50)]))
    assert isinstance(rounds.run("pk"), TableFinished)
    world.produce(users("pk", {7: "back"}))
    assert isinstance(rounds.run("pk"), TableFinished)
    expected = {n: name for n, name in {**first, **second, **third}.items() if n >= 50} | {7: "back"}
    assert names(world, "pk") == expected == union(world, "pk")
    world.produce(users("pk", {60: "tail", 3_000: "new"}), Delete(table="pk", keys=[{"id": 61}]))
    tail = {n: name for n, name in expected.items() if n != 61} | {60: "tail", 3_000: "new"}
    assert union(world, "pk") == tail
    assert world.committed("pk") != world.ends("pk")


def test_partitions_of_a_pk_table(world: PaimonWorld, rounds: OnDemand) -> None:
    days = ("2024-02-29", "2024-03-01")
    world.produce(
        MakeTable(name="daily", schema=DAILY, primary_key=("id", "day"), partition_keys=("day",), freshness="1h"),
        *(MakePartition(table="daily", spec={"day": day}) for day in days),
        *(users("daily", {n: f"{day} {n}" for n in range(50)}, day=day) for day in days),
    )
    assert isinstance(rounds.run("daily"), TableFinished)
    world.produce(users("daily", dict.fromkeys(range(10), "again"), day=days[1]))
    assert isinstance(rounds.run("daily"), TableFinished)
    expected = {(n, day): f"{day} {n}" for day in days for n in range(50)} | {(n, days[1]): "again" for n in range(10)}
    found = world.rows("daily").to_pylist()
    assert {(r["id"], r["day"]): r["name"] for r in found} == expected
    assert len(found) == len(expected)
    folders = {p.parent.parent.name for p in (world.cluster.warehouse / "shop.db" / "daily").rglob("data-lw-*")}
    assert folders == {f"day={day}" for day in days}
    assert {b.partition for b in world.committed("daily")} == set(days)


def test_types_of_log_and_pk_tables(world: PaimonWorld, rounds: OnDemand) -> None:
    flat = [*(typed_row(n) for n in range(1, 6)), {**dict.fromkeys(ALL_TYPES.names), "id": 6}]
    for kind, schema, rows in (("flat", ALL_TYPES, flat), ("nested", NESTED, ROWS)):
        keyed = schema.set(0, pa.field("id", pa.int64(), nullable=False))
        changes = [{**r, "scores": dict(r["scores"])} if r.get("scores") else r for r in rows]
        world.produce(
            MakeTable(name=kind, schema=schema, buckets=1, freshness="1h"),
            Append(table=kind, rows=pa.RecordBatch.from_pylist(rows, schema=schema)),
            MakeTable(name=f"{kind}_pk", schema=keyed, primary_key=("id",), buckets=1, freshness="1h"),
            Upsert(table=f"{kind}_pk", rows=changes),
        )
        for name in (kind, f"{kind}_pk"):
            assert isinstance(rounds.run(name), TableFinished)
            assert [as_read(dict(r)) for r in world.by_key(name).values()] == rows, name


def test_a_lake_that_is_ahead_is_taken_over(world: PaimonWorld, rounds: OnDemand) -> None:
    take_over_ahead(world, rounds)


def test_fluss_ahead_of_the_lake_stops_the_table(world: PaimonWorld, rounds: OnDemand) -> None:
    stop_behind(world, rounds)


def test_files_of_a_pk_table_are_merged_between_rounds(world: PaimonWorld) -> None:
    """By sequence number: a delete hides older rows of its key, and a row that comes after it shows."""
    world.produce(MakeTable(name="kept", schema=USERS, primary_key=("id",), buckets=1, freshness="1s"))
    expected: dict[int, str] = {}
    job = ThreadJob(world.cluster.bootstrap, "upkeep")
    try:
        for wave in range(LOOK_ROUNDS + 1):
            changed = dict.fromkeys(range(wave, wave + 20), f"wave {wave}")
            world.produce(users("kept", changed), Delete(table="kept", keys=[{"id": wave}]))
            expected = {n: name for n, name in {**expected, **changed}.items() if n != wave}
            world.wait_tiered("kept", LEASE_S)
        wait_until(lambda: world.compactions("kept") > 0, what="a compaction of the table")
        assert names(world, "kept") == expected == union(world, "kept")
        world.produce(users("kept", {3: "back", 15: "after"}))
        world.wait_tiered("kept", LEASE_S)
    finally:
        job.stop()
    assert names(world, "kept") == expected | {3: "back", 15: "after"} == union(world, "kept")
    head = world.paimon("kept").open_reader(world.table("kept")).load_snapshot()
    ((known, _),) = world.produce(LakeSnapshotOf(table="kept"))
    assert head is not None
    assert str(known) == head.snapshot_id


class Daily:
    """A partitioned PK table that changes step by step, with what the lake must hold."""

    DAYS = ("2024-02-29", "2024-03-01")

    def __init__(self, world: PaimonWorld, name: str) -> None:
        self.world, self.name = world, name
        self.rows = dict[tuple[int, str], str]()
        key = ("id", "day")
        world.produce(
            MakeTable(name=name, schema=DAILY, primary_key=key, partition_keys=("day",), freshness="2s"),
            *(MakePartition(table=name, spec={"day": day}) for day in self.DAYS),
        )

    def step(self, number: int) -> None:
        changed = {n: f"step {number} of {n}" for n in range(number, 60 + number, 1 + number % 3)}
        self.world.produce(*(users(self.name, changed, day=day) for day in self.DAYS))
        self.rows |= {(n, day): name for day in self.DAYS for n, name in changed.items()}

    def check(self, limit_s: float) -> None:
        self.world.wait_tiered(self.name, limit_s)
        found = self.world.rows(self.name).to_pylist()
        assert {(r["id"], r["day"]): r["name"] for r in found} == self.rows
        assert len(found) == len(self.rows)


class Keyed:
    """A log table with a bucket key, whose rows all have their offsets, whoever wrote them."""

    def __init__(self, world: PaimonWorld, name: str) -> None:
        self.world, self.name, self.rows = world, name, 0
        world.produce(MakeTable(name=name, schema=EVENTS, bucket_keys=("id",), freshness="2s"))

    def step(self, number: int) -> None:
        count = 40 + number
        self.world.produce(Append(table=self.name, rows=events(self.rows, self.rows + count), is_by_row=True))
        self.rows += count

    def check(self, limit_s: float) -> None:
        ends = self.world.wait_tiered(self.name, limit_s)
        found = self.world.rows(self.name)
        assert sorted(found.column("id").to_pylist()) == list(range(self.rows))
        for bucket, end in ends.items():
            offsets = [r["__offset"] for r in found.to_pylist() if r["__bucket"] == bucket.number]
            assert sorted(offsets) == list(range(end))


def test_flink_then_ours_then_flink_again(world: PaimonWorld, tmp_path: Path) -> None:
    """On log tables, a PK table and a partitioned one; each finds the other's rows and goes on from there."""
    load, daily, keyed = Load(world, "_turns"), Daily(world, "daily_turns"), Keyed(world, "keyed_turns")
    for turn, is_ours in enumerate((False, True, False, True)):
        job = (
            ThreadJob(world.cluster.bootstrap, f"turn-{turn}")
            if is_ours
            else FlinkTieringJob(world.cluster, tmp_path / f"flink-{turn}.log")
        )
        try:
            for step in (0, 1):
                load.step(2 * turn + step)
                daily.step(2 * turn + step)
                keyed.step(2 * turn + step)
                load.check(LEASE_S)
                daily.check(LEASE_S)
                keyed.check(LEASE_S)
        finally:
            job.stop()
    for table in (load.log, load.pk, daily.name, keyed.name):
        certificate = verify_table(world.plugin, world.table(table).path, deep=True)
        assert not certificate.all_findings
        if not world.table(table).is_pk:
            assert (certificate.verdict, certificate.compared) == (CertificateVerdict.HOLDS, certificate.rows)
        assert world.writers(table) == {"flink", "turn-1", "turn-3"}
    for table, count in ((load.log, load.rows), (keyed.name, keyed.rows)):
        world.produce(Append(table=table, rows=events(count, count + 20), is_by_row=True))
        found = pa.Table.from_batches(list(read(world.plugin, request_of(f"{DATABASE}.{table}"))))
        assert sorted(found.column("id").to_pylist()) == list(range(count + 20))


def test_both_at_once(world: PaimonWorld, tmp_path: Path) -> None:
    work_both_at_once(world, tmp_path, 3)
