# SPDX-License-Identifier: Apache-2.0
"""A Fluss cluster for the whole run, and a tiering job on it. Skipped, with the reason, where the cluster cannot be
had.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.config.java import load_java
from lakeward.errors import LakewardError
from lakeward.hot.fluss.plugin import PASSWORD_VARIABLE
from lakeward.hot.fluss.wire.connection import Credentials
from tests.fluss.ondemand import OnDemand
from tests.fluss.world import FlussWorld, ThreadJob
from tests.kit.fluss.cluster import TEST_SETTINGS, FlussCluster
from tests.kit.fluss.jars import ICEBERG, SERVER, fluss_version, load_jars

collect_ignore = ["test_upgrade.py", "test_news.py"] if fluss_version() == "0.9.1" else []
"""From 0.9.1 to what was chosen, and what that has and 0.9.1 has not."""

LOGIN = Credentials(user="tiering", password="a pass;word")
JARS_LIMIT_S = 180.0
"""A first run fetches 0.4 GB; where that takes longer, `make fluss-up` has the patience, and the next run has the jars.
"""


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlussCluster]:
    """Where Java or the jars cannot be had there is nothing to test with; a cluster that does
    not start is a failure.
    """
    try:
        load_java()
        load_jars((*SERVER, *ICEBERG), limit_s=JARS_LIMIT_S)
    except LakewardError as error:
        pytest.skip(f"no Fluss cluster can be started on this machine: {error}")
    made = FlussCluster(home=tmp_path_factory.mktemp("fluss"), settings=TEST_SETTINGS)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(scope="package")
def world(cluster: FlussCluster) -> Iterator[FlussWorld]:
    made = FlussWorld(cluster)
    yield made
    made.close()


@pytest.fixture(scope="package")
def job(cluster: FlussCluster) -> Iterator[ThreadJob]:
    """One job that tiers whatever tables the tests make."""
    made = ThreadJob(cluster.bootstrap, "tests")
    yield made
    made.stop()


@pytest.fixture
def rounds(world: FlussWorld) -> Iterator[OnDemand]:
    made = OnDemand(world)
    yield made
    made.close()


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlussWorld]:
    """Clients must log in; LAKEWARD_FLUSS_PASSWORD reaches this process and the job's."""
    monkeypatch.setenv(PASSWORD_VARIABLE, LOGIN.password)
    cluster = FlussCluster(home=tmp_path / "fluss", settings=TEST_SETTINGS, login=LOGIN).start()
    world = FlussWorld(cluster, login=(LOGIN.user, LOGIN.password))
    yield world
    world.close()
    cluster.stop()


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[FlussWorld]:
    """A cluster of its own: these tests stop and kill parts of it. Its only tablet server notes every second how far
    its log is safe: killed, it comes back without what was written after that (`test_servers.py` shows it)."""
    settings = {**TEST_SETTINGS, "log.replica.high-watermark.checkpoint-interval": "1s"}
    cluster = FlussCluster(home=tmp_path / "fluss", settings=settings).start()
    world = FlussWorld(cluster)
    yield world
    world.close()
    cluster.stop()
