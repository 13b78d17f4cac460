# SPDX-License-Identifier: Apache-2.0
"""Consumer groups on a real server: shares, positions, members that die and come, exactly once by stored positions."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from lakeward.client import Client, Table
from lakeward.client.group import GroupConsumer
from lakeward_testing.waiting import wait_until
from tests.kit.serverprocess import ServerProcess


@pytest.fixture
def table(source_server: ServerProcess, request: pytest.FixtureRequest) -> Table:
    client = source_server.client()
    name = re.sub(r"\W", "_", request.node.name)
    return client.create_table(f"groups.{name}", "id bigint", buckets=4, bucket_key="id")


def rows(first: int, last: int) -> list[dict[str, int]]:
    return [{"id": n} for n in range(first, last)]


def test_members_share_buckets_and_the_next_one_goes_on(table: Table) -> None:
    table.append(rows(0, 100))
    with table.consumer("g", idle_s=0.0) as one:
        seen = [row["id"] for batch in one for row in batch.to_pylist()]
    assert sorted(seen) == list(range(100))
    table.append(rows(100, 150))
    with table.consumer("g", idle_s=0.0) as two:
        assert sorted(row["id"] for batch in two for row in batch.to_pylist()) == list(range(100, 150))
    with table.consumer("h") as a, table.consumer("h") as b:

        def shares() -> tuple[int, int]:
            a.commit()
            b.commit()
            return len(a.buckets), len(b.buckets)

        wait_until(lambda: shares() == (2, 2), what="two buckets each")
        assert not set(a.buckets) & set(b.buckets)


def test_a_program_that_stores_positions_sees_each_row_once(table: Table) -> None:
    table.append(rows(0, 60))
    results: list[int] = []
    stored: dict[str, int] = {}
    for _ in range(5):  # each ends without a word to the server in the middle of its work
        member = table.consumer("g", positions=stored.get, idle_s=0.0, member="m")
        for batch in member:
            results += batch.column("id").to_pylist()
            assert member.position is not None
            stored[member.position[0]] = member.position[1]
            break
        member._closing.set()
    assert sorted(results) == sorted(set(results))
    assert sorted(results) == list(range(60))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_members_die_and_come_at_random(table: Table, source_server: ServerProcess, seed: int) -> None:
    draw, seen, lock = random.Random(seed), Counter[int](), threading.Lock()
    positions: dict[str, int] = {}
    stop = threading.Event()

    def work(consumer: GroupConsumer, dies_after: int) -> None:
        for count, batch in enumerate(consumer):
            with lock:
                seen.update(batch.column("id").to_pylist())
            if count >= dies_after or stop.is_set():
                consumer._closing.set()  # no leave, no commit: as a killed process
                return

    group, threads = f"g{seed}", []
    for step in range(12):
        table.append(rows(step * 50, step * 50 + 50))
        client: Client = source_server.client()
        consumer = client.table(table.path).consumer(group)
        threads.append(threading.Thread(target=work, args=(consumer, draw.choice([0, 1, 3, 1000]))))
        threads[-1].start()
        status = client.server.ask("GET", f"/api/v1/tables/{table.path}/groups/{group}")
        for bucket, offset in status["offsets"].items():
            assert offset >= positions.get(bucket, -1)
            positions[bucket] = offset
    with table.consumer(group, idle_s=30) as last:

        def read() -> None:
            for batch in last:
                with lock:
                    seen.update(batch.column("id").to_pylist())
                if len(seen) == 600:
                    return

        read()
    stop.set()
    table.append(rows(0, 4))
    for thread in threads:
        thread.join(60)
    assert set(seen) == set(range(600))


def test_dataclasses_and_models_are_rows(table: Table) -> None:
    @dataclass
    class Click:
        id: int

    class Model(BaseModel):
        id: int

    table.append([Click(1), Model(id=2)])
    table.append(Click(3))
    assert sorted(table.read().to_table()["id"].to_pylist()) == [1, 2, 3]
