# SPDX-License-Identifier: Apache-2.0
"""Clusters of other shapes: several tablet servers whose leaders move, and listeners that want a login."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lakeward.errors import FlussError, ServerUnavailable, Unauthorized
from lakeward.hot.fluss.connection import Credentials
from lakeward.hot.fluss.messages import LIST_DATABASES, METADATA
from lakeward.hot.fluss.plugin import PASSWORD_VARIABLE, FlussPlugin
from lakeward.hot.fluss.servers import FlussServers, path_message
from lakeward.testing.fluss.cluster import TEST_SETTINGS, FlussCluster
from lakeward.testing.waiting import wait_until
from tests.fluss.steps import DATABASE
from tests.fluss.test_handover import Load
from tests.fluss.world import FlussWorld, ThreadJob

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
            wait_until(partial(is_led_without, three, load.log, victim), limit_s=90, what="new leaders", tolerate=AWAY)
            moved |= {b for b, node in leaders(three, load.log).items() if node != before[b]}
            load.step(turn)
            load.check(120)
            three.cluster.start_process(f"tablet-{victim}")
            three.cluster.wait_ready()
        assert moved == {0, 1}
    finally:
        job.stop()


USER = Credentials(user="tiering", password="a pass;word")


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlussWorld]:
    """Clients must log in; LAKEWARD_FLUSS_PASSWORD reaches this process and the job's."""
    monkeypatch.setenv(PASSWORD_VARIABLE, USER.password)
    cluster = FlussCluster(home=tmp_path / "fluss", settings=TEST_SETTINGS, login=USER).start()
    world = FlussWorld(cluster, login=(USER.user, USER.password))
    yield world
    world.close()
    cluster.stop()


def test_a_cluster_that_wants_a_login(guarded: FlussWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    load, job = Load(guarded), ThreadJob(guarded.cluster.bootstrap, "known", user=USER.user)
    try:
        load.step(0)
        load.check()
        load.step(1)
        load.check()
    finally:
        job.stop()
    for wrong in (Credentials(user=USER.user, password="other"), Credentials(user="nobody", password=USER.password), None):
        servers = FlussServers(guarded.cluster.bootstrap, credentials=wrong)
        with pytest.raises(Unauthorized):
            servers.call_any(LIST_DATABASES, {})
        servers.close()
    monkeypatch.setenv(PASSWORD_VARIABLE, "other")
    with pytest.raises(Unauthorized):
        FlussPlugin({"bootstrap": guarded.cluster.bootstrap, "user": USER.user}).store().list_tables()
