# SPDX-License-Identifier: Apache-2.0
"""Clusters of other shapes: several tablet servers whose leaders move, and listeners that want a login."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.errors import FlussError, LakewardError, ServerUnavailable, Unauthorized
from lakeward.hot.fluss.logmarks import ACCEPT_VARIABLE
from lakeward.hot.fluss.plugin import PASSWORD_VARIABLE, FlussPlugin
from lakeward.hot.fluss.wire.connection import Credentials
from lakeward.hot.fluss.wire.messages import LIST_DATABASES, METADATA
from lakeward.hot.fluss.wire.servers import FlussServers, path_message
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward_testing.waiting import wait_until
from tests.fluss.conftest import JARS_LIMIT_S, LOGIN
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, EVENTS, USERS, Append, MakeTable, Upsert
from tests.fluss.test_handover import Load
from tests.fluss.test_tiering import first_answer
from tests.fluss.world import FlussWorld, ThreadJob
from tests.kit.fluss.cluster import TEST_SETTINGS, FlussCluster
from tests.kit.fluss.jars import S3, load_jars
from tests.kit.iceberg.s3 import REGION, s3_store

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

AWAY = (ServerUnavailable, FlussError)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[FlussWorld]:
    """Three tablet servers, three replicas of each bucket."""
    settings = {**TEST_SETTINGS, "default.replication.factor": "3"}
    cluster = FlussCluster(home=tmp_path / "fluss", tablets=3, settings=settings).start()
    world = FlussWorld(cluster)
    yield world
    world.close()
    cluster.stop()


def leaders(world: FlussWorld, name: str) -> dict[int, int]:
    """Bucket -> tablet server, asked anew."""
    servers = FlussServers(world.cluster.bootstrap)
    try:
        (table,) = servers.call_any(METADATA, {"paths": [path_message(DATABASE, name)]})["tables"]
        return {b.get("bucket", 0): b.get("leader", -1) for b in table["buckets"]}
    finally:
        servers.close()


def is_led_without(world: FlussWorld, name: str, gone: int) -> bool:
    return not {gone, -1} & set(leaders(world, name).values())


def test_leaders_that_move_are_followed(three: FlussWorld) -> None:
    """Each tablet server is killed once while the same job, and the same client here, go on with what they know."""
    load, job = Load(three), ThreadJob(three.cluster.bootstrap, "follower")
    try:
        load.step(0)
        load.check()
        moved = set()
        for turn in range(1, 4):
            before = leaders(three, load.log)
            victim = before[turn % 2]
            three.cluster.kill(f"tablet-{victim}")
            wait_until(partial(is_led_without, three, load.log, victim), what="new leaders", tolerate=AWAY)
            moved |= {b for b, node in leaders(three, load.log).items() if node != before[b]}
            load.step(turn)
            load.check(120)
            three.cluster.start_process(f"tablet-{victim}")
            three.cluster.wait_ready()
        assert moved == {0, 1}
    finally:
        job.stop()


def test_a_cluster_that_wants_a_login(guarded: FlussWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    load, job = Load(guarded), ThreadJob(guarded.cluster.bootstrap, "known", user=LOGIN.user)
    try:
        load.step(0)
        load.check()
        load.step(1)
        load.check()
    finally:
        job.stop()
    for wrong in (
        Credentials(user=LOGIN.user, password="other"),
        Credentials(user="nobody", password=LOGIN.password),
        None,
    ):
        servers = FlussServers(guarded.cluster.bootstrap, credentials=wrong)
        with pytest.raises(Unauthorized):
            servers.call_any(LIST_DATABASES, {})
        servers.close()
    monkeypatch.setenv(PASSWORD_VARIABLE, "other")
    with pytest.raises(Unauthorized):
        FlussPlugin({"bootstrap": guarded.cluster.bootstrap, "user": LOGIN.user}).store().list_tables()


@pytest.fixture
def in_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlussWorld]:
    """Remote segments, KV snapshots and offsets files lie in a bucket; the lake on disk. Fluss's part for S3 is a jar
    of its own, which a folder of jars that were built from a tree need not have."""
    try:
        load_jars(S3, limit_s=JARS_LIMIT_S)
    except LakewardError as error:
        pytest.skip(f"no Fluss cluster with remote storage on S3 can be started: {error}")
    with s3_store() as storage:
        for name, value in {**storage.environment, "AWS_ENDPOINT_URL": storage.endpoint}.items():
            monkeypatch.setenv(name, value)
        login = {"s3.access-key": "test", "s3.secret-key": "test"}
        where = {
            "remote.data.dir": f"{storage.new_bucket()}/fluss",
            "s3.endpoint": storage.endpoint,
            "s3.region": REGION,
        }
        settings = {**TEST_SETTINGS, **where, **login, "s3.path.style.access": "true"}
        cluster = FlussCluster(home=tmp_path / "fluss", settings=settings).start()
        world = FlussWorld(cluster)
        yield world
        world.close()
        cluster.stop()


def test_remote_storage_in_a_bucket(in_s3: FlussWorld) -> None:
    """A first round from KV snapshots and remote segments, then rounds of the log."""
    uncompressed = {"table.log.arrow.compression.type": "NONE"}
    rows = pa.RecordBatch.from_pylist([{"id": n, "name": f"{n * 7919:x}" * 30} for n in range(30_000)], schema=EVENTS)
    in_s3.produce(
        MakeTable(name="far", schema=EVENTS, buckets=1, freshness="15s", properties=uncompressed),
        Append(table="far", rows=rows, chunk=1_000),
        MakeTable(name="far_pk", schema=USERS, primary_key=("id",), buckets=1, freshness="15s"),
        Upsert(table="far_pk", rows=[{"id": n, "name": f"user {n}"} for n in range(500)]),
    )
    wait_until(lambda: first_answer(in_s3, "far").get("remote"), what="remote segments")
    assert first_answer(in_s3, "far")["remote"]["folder"].startswith("s3://")
    job = ThreadJob(in_s3.cluster.bootstrap, "far")
    try:
        in_s3.wait_tiered("far", 60)
        in_s3.wait_tiered("far_pk", 60)
        assert sorted(in_s3.rows("far").column("id").to_pylist()) == list(range(30_000))
        assert set(in_s3.rows("far_pk").column("__offset").to_pylist()) == {-1}
        in_s3.produce(Upsert(table="far_pk", rows=[{"id": n, "name": f"again {n}"} for n in range(0, 500, 5)]))
        in_s3.wait_tiered("far_pk", 60)
        assert {k: r["name"] for k, r in in_s3.by_key("far_pk").items()} == {
            n: f"{'user' if n % 5 else 'again'} {n}" for n in range(500)
        }
    finally:
        job.stop()


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[FlussWorld]:
    """One tablet server, which notes once an hour how far its log is safe: killed, it comes back without what came
    after.
    """
    settings = {**TEST_SETTINGS, "log.replica.high-watermark.checkpoint-interval": "1h"}
    cluster = FlussCluster(home=tmp_path / "fluss", settings=settings).start()
    world = FlussWorld(cluster)
    yield world
    world.close()
    cluster.stop()


def events(start: int, stop: int) -> Append:
    rows = [{"id": n, "name": f"event {n}"} for n in range(start, stop)]
    return Append(table="forked", rows=pa.RecordBatch.from_pylist(rows, schema=EVENTS))


def test_a_log_that_lost_writes_and_gave_their_offsets_away_stops_the_table(
    forgetful: FlussWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fluss's deed: acknowledged, tiered, lost. While its log is shorter than the lake, and when it has grown past it
    again.
    """
    rounds = OnDemand(forgetful)
    forgetful.produce(MakeTable(name="forked", schema=EVENTS, buckets=1, freshness="1h"))
    noted = forgetful.cluster.home / "data-tablet-0"
    wait_until(lambda: [*noted.rglob("high-watermark-checkpoint")], what="the hour's only note, of no row")
    forgetful.produce(events(0, 300))
    assert isinstance(rounds.run("forked"), TableFinished)
    assert isinstance(rounds.run("forked"), TableFinished)
    forgetful.cluster.kill("tablet-0")
    forgetful.cluster.start_process("tablet-0")
    forgetful.cluster.wait_ready()
    wait_until(
        lambda: forgetful.plugin.store().freeze(forgetful.table("forked")),
        what="Fluss is back",
        tolerate=AWAY,
    )
    assert sum(forgetful.ends("forked").values()) < 300
    assert code_of(rounds.run("forked")) == "hot-store-behind"
    forgetful.produce(events(1000, 1400))
    assert code_of(rounds.run("forked")) == "log-rewritten"
    assert sorted(forgetful.rows("forked").column("id").to_pylist()) == list(range(300))
    monkeypatch.setenv(ACCEPT_VARIABLE, f"{DATABASE}.forked")
    assert isinstance(rounds.run("forked"), TableFinished)
    monkeypatch.delenv(ACCEPT_VARIABLE)
    assert isinstance(rounds.run("forked"), TableFinished)
    rounds.close()


def code_of(end: object) -> str:
    assert isinstance(end, TableFailed)
    return str(end.error["code"])
