# SPDX-License-Identifier: Apache-2.0
"""`lakeward table adopt --foreign --key` under `kill -9` of the server at moments that a seed draws: after so many
rows, and at steps of a load; then every reader agrees, and changes of the table land as in any other.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakeward.cli import app
from lakeward.errors import ServerUnavailable, TimedOut
from lakeward.protocol import routes
from lakeward.protocol.codec import encode
from lakeward.protocol.operate import AdoptTable
from lakeward_testing.waiting import wait_until
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import Job

NAME = "theirs.orders"
FILES, ROWS, KILLS = 16, 40_000, 6
"""What is loaded is saved every 200,000 rows."""

STEPS = {"load.put": FILES, "load.before-save": 3, "load.sealed": 1, "load.taken-over": 1}
"""And at which of its hits at most."""


Values = dict[int, int]


def make_table(catalog: SqlCatalog, chance: random.Random) -> Values:
    """Rows of many files, some of them deleted by others."""
    catalog.create_namespace_if_not_exists("theirs")
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    table = catalog.create_table(NAME, schema)
    for at in range(FILES):
        ids = np.arange(at * ROWS, (at + 1) * ROWS)
        table.append(pa.table({"id": ids, "v": 10 * ids}, schema=schema))
    gone = set(chance.sample(range(FILES * ROWS), 3))
    table.delete(f"id in ({', '.join(map(str, gone))})")
    return {i: 10 * i for i in range(FILES * ROWS) if i not in gone}


class Adoption:
    """`told` is what was done to the server, for whoever reads a failure."""

    def __init__(self, server: ServerProcess, chance: random.Random) -> None:
        self.server, self.chance, self.told = server, chance, list[str]()

    def run(self) -> None:
        for _ in range(KILLS):
            self.server.environment = self._draw()
            if self._is_up() and self._is_adopted():
                break
        self.server.kill()
        self.server.environment = {}
        self.server.start()
        wait_until(self._ask, what="the table")

    def _is_up(self) -> bool:
        """False: it went on with the load as it started, and came to the step where it dies."""
        try:
            self.server.start()
        except TimedOut:
            if not self.server.environment or self.server.process is None or self.server.process.poll() is None:
                raise
            return False
        return True

    def _draw(self) -> dict[str, str]:
        """A step at which it dies by itself, or none: then it is killed from outside."""
        if self.chance.random() < 0.5:
            self.told.append("killed from outside")
            return {}
        step, most = self.chance.choice(list(STEPS.items()))
        self.told.append(f"{step}, hit {(hit := self.chance.randint(1, most))}")
        return {"LAKEWARD_FAULTS": f"{step}=kill,hit={hit}"}

    def _is_adopted(self) -> bool:
        """False: it was killed before."""
        rows = self.chance.randint(0, FILES * ROWS)
        try:
            while not self._ask():
                if not self.server.environment and self._loaded() >= rows:
                    self.server.kill()
                    return False
        except ServerUnavailable:
            assert self.server.process is not None
            self.server.process.wait(120)
            return False
        return True

    def _ask(self) -> bool:
        """Whether it is there; asked for again where nothing is under way."""
        message = encode(AdoptTable(foreign=True, primary_key=("id",), bucket_count=3))
        with self.server.client() as client:
            return bool(client.server.ask("POST", routes.ADOPT.format(table=NAME), message).get("is_done", True))

    def _loaded(self) -> int:
        with self.server.client() as client:
            return int(client.server.ask("GET", routes.ADOPTION.format(table=NAME)).get("rows", 0))


@dataclass
class Place:
    url: str
    folder: Path


def shown(table: pa.Table) -> Values:
    found = dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
    assert table.num_rows == len(found)
    return found


def check(server: ServerProcess, expected: Values, chance: random.Random, told: str) -> None:
    """By a union read, and key by key in the hot store, those that others deleted too."""
    with server.client() as client:
        assert shown(client.read(NAME).to_table()) == expected, told
        ids = {*chance.sample(range(FILES * ROWS), 300), *(set(range(FILES * ROWS)) - expected.keys())}
        looked_up = client.table(NAME).lookup([{"id": i} for i in sorted(ids)])
        assert shown(looked_up) == {i: expected[i] for i in ids if i in expected}, told


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 7))
def test_a_load_that_is_killed_at_drawn_moments_ends_as_if_it_had_not(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed)
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse"
    catalog = SqlCatalog("theirs", uri=uri, warehouse=warehouse)
    expected = make_table(catalog, chance)
    lake = {"type": "sql", "name": "theirs", "uri": uri, "warehouse": warehouse}
    settings = {"datalake.format": "iceberg", **{f"datalake.iceberg.{k}": v for k, v in lake.items()}}
    server = ServerProcess(tmp_path / "data", settings=settings)
    adoption = Adoption(server, chance)
    try:
        adoption.run()
        told = f"seed {seed}: {'; '.join(adoption.told)}"
        print(told)
        check(server, expected, chance, told)
        change(server, expected, chance)
        check(server, expected, chance, told)
        job = Job(Place(server.url, tmp_path), "after", spark=False)
        try:
            with server.client() as client:
                client.tier_now(NAME, limit_s=180)
        finally:
            job.kill()
        check(server, expected, chance, told)
        assert shown(catalog.load_table(NAME).scan(selected_fields=("id", "v")).to_arrow()) == expected, told
        assert app.run(["verify", NAME, "--deep", "--server", server.url]) == 0, (told, capsys.readouterr().out)
    finally:
        server.close()
        catalog.close()


def change(server: ServerProcess, expected: Values, chance: random.Random) -> None:
    """Updates, inserts and deletes, right after it."""
    new = {i: -i for i in [*chance.sample(sorted(expected), 500), FILES * ROWS + 1]}
    gone = chance.sample(sorted(expected.keys() - new.keys()), 100)
    with server.client() as client:
        client.table(NAME).upsert([{"id": i, "v": v} for i, v in new.items()])
        client.table(NAME).delete([{"id": i} for i in gone])
    expected |= new
    for i in gone:
        del expected[i]
