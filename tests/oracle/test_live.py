# SPDX-License-Identifier: Apache-2.0
"""The live warehouse against a dict: after each step of a random play every engine reads it by URL alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Literal

import polars
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog

from lakeward.model.side import COMPACT
from lakeward.model.table import TablePath
from tests.kit.iceberg.engines import duckdb_connection
from tests.oracle.liveworld import LiveWorld, live_world

Row = tuple[int, str, int | None]
STEPS = {"write": 10, "tier": 4, "compact": 1, "expire": 1, "restart": 1}
TABLES: Mapping[str, Mapping[str, Any]] = {
    "pk": {"primary_key": "id"},
    "pk3": {"primary_key": "id", "iceberg.format-version": "3"},
    "pkpart": {"primary_key": "id, part", "partition_by": "part"},
    "pkpart3": {"primary_key": "id, part", "partition_by": "part", "iceberg.format-version": "3"},
    "log": {},
    "logpart": {"partition_by": "part"},
}
EXPIRING = {"iceberg.history.expire.max-snapshot-age-ms": "1"}
COLUMNS = "id bigint not null, part string not null, n int"


class Play:
    """What was written, as a dict or a list, beside the tables it was written to."""

    def __init__(self, world: LiveWorld, seed: int) -> None:
        self.world, self.random = world, Random(seed)
        self.state: dict[str, dict[tuple[int, str], int | None]] = {n: {} for n in TABLES if n.startswith("pk")}
        self.events: dict[str, list[Row]] = {n: [] for n in TABLES if n.startswith("log")}
        for name, options in TABLES.items():
            world.lakeward.create(f"db.{name}", COLUMNS, buckets=self.random.randint(1, 3), **EXPIRING, **options)

    def step(self) -> str:
        what = self.random.choices(list(STEPS), list(STEPS.values()))[0]
        name = self.random.choice(list(TABLES))
        getattr(self, what)(name)
        return f"{what} {name}"

    def write(self, name: str) -> None:
        rows = [self._row() for _ in range(self.random.choice((1, 3, 40)))]
        if name in self.events:
            self.world.lakeward.append(f"db.{name}", [_named(r) for r in rows])
            self.events[name] += rows
            return
        rows = [(i, "a", n) if TABLES[name]["primary_key"] == "id" else (i, p, n) for i, p, n in rows]
        unique = {(i, p): n for i, p, n in rows}
        if self.random.random() < 0.3:
            self.world.lakeward.delete(f"db.{name}", [_key(name, k) for k in unique])
            self.state[name] = {k: n for k, n in self.state[name].items() if k not in unique}
        else:
            self.world.lakeward.upsert(f"db.{name}", [_named((*k, n)) for k, n in unique.items()])
            self.state[name].update(unique)

    def _row(self) -> Row:
        return (
            self.random.randrange(60),
            self.random.choice("ab"),
            self.random.choice((None, self.random.randrange(99))),
        )

    def tier(self, name: str) -> None:
        self.world.lakeward.tier(f"db.{name}")

    def compact(self, name: str) -> None:
        parts = self.world.lakeward
        parts.tier(f"db.{name}")
        parts.coordinator.operations.maintain_now(TablePath.parse(f"db.{name}"))
        handed = parts.take(f"db.{name}", COMPACT)
        if handed is not None:
            parts.run(handed)

    def expire(self, name: str) -> None:
        self.world.lakeward.coordinator.upkeep.run()
        self.world.live.sweep()

    def restart(self, name: str) -> None:
        self.world.restart()

    def expected(self, name: str) -> list[Row]:
        rows = self.events.get(name) or [(i, p, n) for (i, p), n in self.state.get(name, {}).items()]
        return sorted(rows, key=str)


def _named(row: Row) -> dict[str, Any]:
    return dict(zip(("id", "part", "n"), row, strict=True))


def _key(name: str, key: tuple[int, str]) -> dict[str, Any]:
    return {"id": key[0]} if TABLES[name]["primary_key"] == "id" else {"id": key[0], "part": key[1]}


class Readers:
    """Engines as their users set them up: the URL, the warehouse, and nothing else."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._duckdb = duckdb_connection()
        self._duckdb.execute(f"ATTACH 'live' AS fresh (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")

    def catalog(self) -> RestCatalog:
        catalog = load_catalog("live", type="rest", uri=self._url, warehouse="live")
        assert isinstance(catalog, RestCatalog)
        return catalog

    def pyiceberg(self, name: str) -> list[Row]:
        return _rows(self.catalog().load_table(f"db.{name}").scan().to_arrow().to_pylist())

    def polars(self, name: str) -> list[Row]:
        """Its own reader ends at a positional delete file that names two data files, as one of version 2 may."""
        reader: Literal["pyiceberg"] | None = "pyiceberg" if name in ("pk", "pkpart") else None
        table = self.catalog().load_table(f"db.{name}")
        frame = polars.scan_iceberg(table, reader_override=reader).collect()
        assert isinstance(frame, polars.DataFrame)
        return _rows(frame.to_dicts())

    def duckdb(self, name: str) -> list[Row]:
        return _rows(self._duckdb.sql(f"SELECT id, part, n FROM fresh.db.{name}").to_arrow_table().to_pylist())

    def all(self) -> Mapping[str, Callable[[str], list[Row]]]:
        return {"PyIceberg": self.pyiceberg, "DuckDB": self.duckdb, "Polars": self.polars}


def _rows(rows: list[dict[str, Any]]) -> list[Row]:
    return sorted(((r["id"], r["part"], r["n"]) for r in rows), key=str)


# Polars asks PyIceberg for vectors by a name that PyIceberg has deprecated.
@pytest.mark.filterwarnings("ignore:Call to to_vector:DeprecationWarning")
@pytest.mark.parametrize(
    ("seed", "steps"),
    [(1, 40), (2, 40), *(pytest.param(seed, 500, marks=pytest.mark.soak) for seed in range(11, 15))],
)
def test_engines_read_the_hot_tail_by_url_alone(tmp_path: Path, seed: int, steps: int) -> None:
    with live_world(tmp_path, keep_s=1) as world:
        play, readers = Play(world, seed), Readers(world.url)
        for number in range(steps):
            done = play.step()
            name = play.random.choice(list(TABLES))
            for engine, read in readers.all().items():
                assert read(name) == play.expected(name), f"{engine} after step {number}: {done}"
