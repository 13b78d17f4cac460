# SPDX-License-Identifier: Apache-2.0
"""One server and one job shared by a module; tests make tables of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakeward.client import Client
from tests.spark.processes import Job, Server

SMALL_SPLITS = {"LAKEWARD_TIERING__SPLIT__TARGET_BYTES": "256 kb", "LAKEWARD_TIERING__SMALL_ROUND__BYTES": "64 kb"}
"""So that a few megabytes are a big round: cut into sub-splits, in a Spark job of its own."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("server"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def job(server: Server) -> Iterator[Job]:
    made = Job(server, "shared", settings=SMALL_SPLITS)
    yield made
    code = made.stop()
    assert code == 0, made.text()[-3000:]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.connect() as made:
        yield made
