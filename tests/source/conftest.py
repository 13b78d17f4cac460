# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL for the folder, a database of its own for each test, and ingest runs in this process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from lakeward.client import Client
from lakeward.protocol import routes
from lakeward.source.ingest import Ingest
from lakeward.source.postgres.plugin import PostgresKind
from tests.kit.postgres import Postgres, find_binaries
from tests.kit.serverprocess import ServerProcess

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def source_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path_factory.mktemp("sources") / "data").start()
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if find_binaries() is None:
        pytest.skip("PostgreSQL is not installed")
    made = Postgres(tmp_path_factory.mktemp("postgres") / "pg").start()
    yield made
    made.kill()


@dataclass
class Pair:
    """A database in Postgres, and the one in Lakeward that it goes to."""

    postgres: Postgres
    client: Client
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.postgres.url.replace("/postgres", f"/{self.name}")

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.postgres.run(*statements, database=self.name)

    def config(self) -> dict[str, Any]:
        return dict(PostgresKind().configure(self.url, {"to": self.name, **self.options}))

    def ingest(self, start: Any = None) -> Ingest:
        """Everything that is there now."""
        config = self.config()
        body = {"name": self.name, "kind": "postgres", "config": config, "if_not_exists": True}
        self.client.server.ask("POST", routes.SOURCES, body)
        run = Ingest(self.client, self.name, PostgresKind().open(config, self.url), lambda: False, until_idle=True)
        run.run(start)
        return run

    def stored(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        names = [name.strip() for name in columns.split(",")]
        rows = self.client.read(f"{self.name}.{table}", columns=names).to_table().to_pylist()
        return sorted((tuple(row[name] for name in names) for row in rows), key=repr)

    def check(self, table: str, columns: str) -> int:
        """Both sides are equal; the rows."""
        expected = sorted(self.sql(f"SELECT {columns} FROM {table}"), key=repr)
        assert self.stored(table, columns) == expected
        return len(expected)


@pytest.fixture
def pair(postgres: Postgres, source_server: ServerProcess) -> Iterator[Pair]:
    name = f"db{next(_NUMBERS)}"
    postgres.run(f"CREATE DATABASE {name}")
    with source_server.client() as client:
        made = Pair(postgres, client, name)
        yield made
        for (slot,) in made.sql("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"):
            postgres.run(f"SELECT pg_drop_replication_slot('{slot}')")
