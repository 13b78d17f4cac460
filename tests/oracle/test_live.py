# SPDX-License-Identifier: Apache-2.0
"""The live warehouse against a dict: after each step of a random play every engine reads it by URL alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

import polars
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog

from lakeward.client.columns import parse_columns
from lakeward.protocol.tables import AlterTable
from tests.kit.iceberg.engines import duckdb_connection
from tests.oracle.liveworld import LiveStage, live_world

Row = tuple[Any, ...]
STEPS = {"write": 20, "tier": 8, "compact": 2, "expire": 2, "restart": 2, "alter": 3}
TABLES: Mapping[str, Mapping[str, Any]] = {
    "pk": {"primary_key": "id"},
    "pk3": {"primary_key": "id", "iceberg.format-version": "3"},
    "pkpart": {"primary_key": "id, part", "partition_by": "part"},
    "pkpart3": {"primary_key": "id, part", "partition_by": "part", "iceberg.format-version": "3"},
    "pkclean": {"primary_key": "id", "table.datalake.system-columns": "false"},
    "log": {},
    "logpart": {"partition_by": "part"},
}
EXPIRING = {"iceberg.history.expire.max-snapshot-age-ms": "1"}
COLUMNS = "id bigint not null, part string not null, n int"
KINDS = ("int", "string", "double")


class PlayedTable:
    """One table's rows as they should be. `columns`: name -> what the column is called in rows here, which stays when
    it is renamed, and its type."""

    def __init__(self, name: str) -> None:
        self.key = ("id", "part") if TABLES[name].get("partition_by") else ("id",)
        self.is_log = name.startswith("log")
        self.columns = {"id": ("id", "bigint"), "part": ("part", "string"), "n": ("n", "int")}
        self.rows: dict[Any, dict[str, Any]] = {}

    def put(self, row: dict[str, Any]) -> None:
        self.rows[len(self.rows) if self.is_log else self.key_of(row)] = row

    def key_of(self, row: Mapping[str, Any]) -> Row:
        return tuple(row[c] for c in self.key)

    def named(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: row.get(column) for name, (column, _) in self.columns.items()}

    def named_key(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: row[column] for name, (column, _) in self.columns.items() if column in self.key}

    def expected(self) -> list[Row]:
        return sorted((tuple(self.named(row).values()) for row in self.rows.values()), key=str)


class Play:
    """What was written, beside the tables it was written to."""

    def __init__(self, stage: LiveStage, seed: int) -> None:
        self.stage, self.random = stage, Random(seed)
        self.truths = {name: PlayedTable(name) for name in TABLES}
        self._made = 0
        for name, options in TABLES.items():
            stage.create(f"db.{name}", COLUMNS, buckets=self.random.randint(1, 3), **EXPIRING, **options)

    def step(self) -> str:
        what = self.random.choices(list(STEPS), list(STEPS.values()))[0]
        name = self.random.choice(list(TABLES))
        return f"{what} {name} {getattr(self, what)(name) or ''}"

    def write(self, name: str) -> None:
        truth, stage = self.truths[name], self.stage
        rows = [self._row(truth) for _ in range(self.random.choice((1, 3, 40)))]
        if truth.is_log:
            stage.append(f"db.{name}", [truth.named(r) for r in rows])
        else:
            rows = list({truth.key_of(r): r for r in rows}.values())
            if self.random.random() < 0.3:
                stage.delete(f"db.{name}", [truth.named_key(r) for r in rows])
                for row in rows:
                    truth.rows.pop(truth.key_of(row), None)
                return
            stage.upsert(f"db.{name}", [truth.named(r) for r in rows])
        for row in rows:
            truth.put(row)

    def _row(self, truth: PlayedTable) -> dict[str, Any]:
        values = {"id": self.random.randrange(60), "part": self.random.choice("ab")}
        for column, kind in truth.columns.values():
            number = self.random.randrange(99)
            given = None if self.random.random() < 0.3 else str(number) if kind == "string" else number
            values.setdefault(column, given)
        return values

    def alter(self, name: str) -> str:
        """A column is added, renamed, dropped, widened or moved."""
        truth = self.truths[name]
        free = [n for n, (column, _) in truth.columns.items() if column not in ("id", "part")]
        self._made += 1
        new, old = f"c{self._made}", self.random.choice([*free, "none"])
        what = self.random.choice(("add", "rename", "drop", "widen", "move", "rename key"))
        change = AlterTable(after={old: self.random.choice(["", *(n for n in truth.columns if n != old)])})
        columns = dict(truth.columns)
        if what == "rename key":
            old = next(n for n, (column, _) in columns.items() if column == "id")
        if what == "add" or old == "none":
            kind = self.random.choice(KINDS)
            columns[new] = (new, kind)
            change = AlterTable(add_columns=tuple(c.to_json() for c in parse_columns(f"{new} {kind}")))
        elif what.startswith("rename"):
            columns = {new if n == old else n: c for n, c in columns.items()}
            change = AlterTable(rename_columns={old: new})
        elif what == "drop":
            del columns[old]
            change = AlterTable(drop_columns=(old,))
        elif what == "widen" and columns[old][1] == "int":
            columns[old] = (columns[old][0], "bigint")
            change = AlterTable(widen_columns={old: "bigint"})
        self.stage.alter(f"db.{name}", change)
        truth.columns = columns
        return f"{what} {old} {new}"

    def tier(self, name: str) -> None:
        self.stage.tier(f"db.{name}")

    def compact(self, name: str) -> None:
        self.stage.compact(f"db.{name}")

    def expire(self, name: str) -> None:
        self.stage.expire()

    def restart(self, name: str) -> None:
        self.stage.restart()

    def columns(self, name: str) -> list[str]:
        return list(self.truths[name].columns)

    def expected(self, name: str) -> list[Row]:
        return self.truths[name].expected()


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

    def pyiceberg(self, name: str, columns: Sequence[str]) -> list[Row]:
        return sorted_rows(self.catalog().load_table(f"db.{name}").scan().to_arrow().to_pylist(), columns)

    def polars(self, name: str, columns: Sequence[str]) -> list[Row]:
        """Its own reader ends at a positional delete file that names two data files, as one of version 2 may."""
        reader: Literal["pyiceberg"] | None = "pyiceberg" if name in ("pk", "pkpart", "pkclean") else None
        table = self.catalog().load_table(f"db.{name}")
        frame = polars.scan_iceberg(table, reader_override=reader).collect()
        assert isinstance(frame, polars.DataFrame)
        return sorted_rows(frame.to_dicts(), columns)

    def duckdb(self, name: str, columns: Sequence[str]) -> list[Row]:
        found = self._duckdb.sql(f"SELECT {', '.join(columns)} FROM fresh.db.{name}").to_arrow_table().to_pylist()
        return sorted_rows(found, columns)

    def all(self) -> Mapping[str, Read]:
        return {"PyIceberg": self.pyiceberg, "DuckDB": self.duckdb, "Polars": self.polars}

    def close(self) -> None:
        self._duckdb.close()


Read = Callable[[str, Sequence[str]], list[Row]]


def sorted_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[Row]:
    return sorted((tuple(row.get(name) for name in columns) for row in rows), key=str)


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
                assert read(name, play.columns(name)) == play.expected(name), f"{engine} after step {number}: {done}"
