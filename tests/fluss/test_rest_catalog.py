# SPDX-License-Identifier: Apache-2.0
"""A cluster whose lake is behind a REST catalog that wants a token: from the table where Fluss shows it, else from the
environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.errors import LakewardError
from lakeward.spi import load_lake
from tests.fluss.steps import DATABASE, EVENTS, USERS, Append, Delete, MakeTable, Upsert
from tests.fluss.world import FlussWorld, ThreadJob
from tests.kit.fluss.cluster import TEST_SETTINGS, FlussCluster
from tests.kit.iceberg.server import serving

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

TOKEN = "of-the-lake"
VARIABLE = "PYICEBERG_CATALOG__FLUSS_ICEBERG_CATALOG__TOKEN"


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[FlussWorld]:
    home = tmp_path / "fluss"
    own = {"type": "sql", "uri": f"sqlite:///{tmp_path}/rest.db", "warehouse": f"file://{tmp_path}/lake"}
    with serving(own, tokens=[f"tests:admin:{TOKEN}"]) as url:
        lake = {"datalake.iceberg.type": "rest", "datalake.iceberg.uri": url, "datalake.iceberg.token": TOKEN}
        cluster = FlussCluster(home=home, settings={**TEST_SETTINGS, **lake}).start()
        world = FlussWorld(cluster)
        yield world
        world.close()
        cluster.stop()


def test_rounds_through_a_rest_catalog(rest: FlussWorld) -> None:
    rest.produce(
        MakeTable(name="log", schema=EVENTS, freshness="1s"),
        MakeTable(name="pk", schema=USERS, primary_key=("id",), freshness="1s"),
    )
    job = ThreadJob(rest.cluster.bootstrap, "rest")
    try:
        for turn in range(2):
            rows = [{"id": n, "name": f"event {n}"} for n in range(200 * turn, 200 * turn + 200)]
            rest.produce(
                Append(table="log", rows=pa.RecordBatch.from_pylist(rows, schema=EVENTS)),
                Upsert(table="pk", rows=[{"id": n, "name": f"turn {turn}"} for n in range(50 * turn, 200)]),
                Delete(table="pk", keys=[{"id": n} for n in range(turn, 200, 10)]),
            )
            rest.wait_tiered("log", 60)
            rest.wait_tiered("pk", 60)
        assert "WARNING" not in job.log, job.log
    finally:
        job.stop()
    assert sorted(rest.rows("log").column("id").to_pylist()) == list(range(400))
    expected = {n: f"turn {int(n >= 50)}" for n in range(200) if n % 10 != 1 and (n % 10 != 0 or n >= 50)}
    assert {k: r["name"] for k, r in rest.by_key("pk").items()} == expected
    name, options = rest.plugin.lake_options(rest.table("log"))
    assert options["token"] == TOKEN
    without = {k: v for k, v in options.items() if k != "token"}
    with pytest.raises(LakewardError, match="Unauthorized"):
        load_lake(name, without).open_reader(rest.table("log")).load_base()
    assert list_tables(without, {VARIABLE: TOKEN}) == ["log", "pk"]


def list_tables(options: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """By a process of its own: PyIceberg reads its environment once."""
    program = f"""
from lakeward.spi.registry import load_lake
catalog = load_lake("iceberg", {dict(options)!r}).connection.catalog
print(*sorted(name for _, name in catalog.list_tables("{DATABASE}")))"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
