# SPDX-License-Identifier: Apache-2.0
"""docs/kafka.md with a real broker: its program is killed half-way and started again; every record is there once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.client import Client
from lakeward_testing.waiting import wait_until
from tests.kit.fluss.jars import cache_folder, load_jars
from tests.kit.kafka import Broker
from tests.spark.processes import Process, Server
from tests.spark.test_versions import make_environment

pytestmark = [pytest.mark.soak, pytest.mark.spark]
PAGE = (Path(__file__).parents[2] / "docs/kafka.md").read_text()
SPARK = "4.2.0"
CONNECTOR = [
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
]
"""With what it needs, by name: mirrors of Maven lack some of it in its newest version."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "kafka", cache_folder().parent / "kafka")
    yield made
    made.stop()


def write_program(folder: Path, server: Server, broker: Broker) -> Path:
    """The page's, with addresses of this test, and the connector as jars: Spark's own download knows no mirror."""
    jars = load_jars(CONNECTOR, cache_folder().parent / "kafka")
    program = re.findall(r"```python\n(import pyspark\n.*?)```", PAGE, re.S)[0]
    for old, new in (
        ('"spark.jars.packages", connector', f'"spark.jars", "{",".join(map(str, jars))}"'),
        ("broker:9092", broker.address),
        ("http://127.0.0.1:9050", server.url),
        ("file:///var/lib/lakeward/kafka-events", f"file://{folder}/checkpoint"),
    ):
        assert old in program
        program = program.replace(old, new)
    (folder / "program.py").write_text(program)
    return folder / "program.py"


def test_the_page_brings_every_record_once(server: Server, client: Client, broker: Broker, tmp_path: Path) -> None:
    columns = re.findall(r'table create feed\.events "([^"]+)"', PAGE)[0]
    table = client.create_table("feed.events", columns, buckets=4, freshness="1 h")
    python = make_environment(tmp_path / "env", SPARK)
    program = write_program(tmp_path, server, broker)

    def seen() -> list[str]:
        keys: list[str] = client.read("feed.events", mode="hot").to_table()["key"].to_pylist()
        return keys

    def run(wanted: int) -> None:
        log = tmp_path / "program.log"
        process = Process(
            [str(program)], log, {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}, str(python)
        )
        try:
            wait_until(
                lambda: len(seen()) >= wanted or not process.is_alive(),
                limit_s=300,
                poll_s=1,
                what=f"{wanted} records",
                state=process.text,
            )
            assert process.is_alive(), process.text()[-3000:]
        finally:
            process.kill()

    broker.send("events", ((f"k{n}", f"v{n}") for n in range(500)))
    run(1)
    broker.send("events", ((f"k{n}", f"v{n}") for n in range(500, 800)))
    run(800)
    assert sorted(seen()) == sorted(f"k{n}" for n in range(800))
    assert table.path == "feed.events"
