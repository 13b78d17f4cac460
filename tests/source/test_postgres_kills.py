# SPDX-License-Identifier: Apache-2.0
"""Postgres, server and ingest process are killed at seeded moments: the table equals Postgres's, and no reader ever saw
half of a transaction."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg2
import pytest

from lakeward.errors import LakewardError
from lakeward_testing.waiting import wait_until
from tests.kit.postgres import Postgres, find_binaries
from tests.kit.serverprocess import ServerProcess

ACCOUNTS, MONEY = 40, 1_000


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Postgres]:
    if find_binaries() is None:
        pytest.skip("PostgreSQL is not installed")
    made = Postgres(tmp_path / "pg", settings={"wal_sender_timeout": "'5s'"}).start()
    yield made
    made.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path / "data").start()
    yield made
    made.close()


class IngestProcess:
    def __init__(self, origin: str, server: ServerProcess, log: Path, *options: str) -> None:
        self._command = [sys.executable, "-m", "lakeward.cli", "ingest", origin, "--name", "bank", *options]
        self._server, self._log = server, log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {**os.environ, "LAKEWARD_SERVER": self._server.url}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)

    def ensure(self) -> None:
        """An ingest process that ended by itself is started again, as a supervisor would."""
        if self.process is None or self.process.poll() is not None:
            self.start()


@contextmanager
def transfers(postgres: Postgres, seed: int, count: list[int]) -> Iterator[None]:
    """Moves money between accounts, two rows in a transaction, and makes and drops others."""
    stop, draw = threading.Event(), random.Random(seed)

    def work() -> None:
        while not stop.is_set():
            try:
                connection = postgres.connect()
            except psycopg2.OperationalError:
                time.sleep(0.05)
                continue
            with suppress(psycopg2.Error), connection.cursor() as cursor:
                while not stop.is_set():
                    a, b, amount = draw.randrange(ACCOUNTS), draw.randrange(ACCOUNTS), draw.randrange(20)
                    cursor.execute(
                        f"BEGIN; UPDATE accounts SET n = n - {amount} WHERE id = {a}; "
                        f"UPDATE accounts SET n = n + {amount} WHERE id = {b}; "
                        f"INSERT INTO log VALUES ({count[0]}, {a}, {b}, {amount}) ON CONFLICT DO NOTHING; COMMIT"
                    )
                    count[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_everything_is_killed_and_both_sides_are_equal(
    postgres: Postgres, server: ServerProcess, tmp_path: Path, seed: int
) -> None:
    draw, count, sums = random.Random(seed), [0], set[int]()
    postgres.run(
        "CREATE TABLE accounts (id int PRIMARY KEY, n bigint, doc text)",
        "CREATE TABLE log (id bigint PRIMARY KEY, a int, b int, amount int)",
        "ALTER TABLE accounts ALTER doc SET STORAGE EXTERNAL",
        f"INSERT INTO accounts SELECT g, {MONEY}, repeat('d', 3000) FROM generate_series(0, {ACCOUNTS - 1}) g",
        "INSERT INTO log SELECT -g, 0, 0, 0 FROM generate_series(1, 30000) g",
    )
    ingest = IngestProcess(postgres.url, server, tmp_path / "ingest.log", "--to", "bank", "--buckets", "3")
    ingest.start()
    try:
        with transfers(postgres, seed, count):
            for _ in range(6):
                time.sleep(draw.uniform(0.3, 2.5))  # the moment is what the seed draws; nothing waits for anything here
                victim = draw.choice(["postgres", "server", "ingest", "ingest"])
                if victim == "postgres":
                    postgres.kill()
                    postgres.start()
                elif victim == "server":
                    server.kill()
                    server.restart()
                else:
                    ingest.kill()
                ingest.ensure()
                with suppress(LakewardError), server.client() as client:
                    if client.server.ask("GET", "/api/v1/sources/bank")["phase"] == "streaming":
                        sums.add(sum(client.read("bank.accounts").to_table()["n"].to_pylist()))

        def equal() -> bool:
            ingest.ensure()
            with server.client() as client:
                for table, columns in (("accounts", "id, n, doc"), ("log", "id, a, b, amount")):
                    expected = {tuple(row) for row in postgres.run(f"SELECT {columns} FROM {table}")}
                    rows = client.read(f"bank.{table}").to_table().to_pylist()
                    if len(rows) != len(expected) or {tuple(row.values()) for row in rows} != expected:
                        return False
            return True

        def text() -> str:
            return (tmp_path / "ingest.log").read_text()[-3000:]

        wait_until(lambda: _quietly(equal), limit_s=240, poll_s=1, what="equal tables", state=text)
        assert count[0] > 0
        assert sums <= {ACCOUNTS * MONEY}
    finally:
        ingest.kill()


def _quietly(check: object) -> bool:
    try:
        return bool(check())  # type: ignore[operator]
    except LakewardError:
        return False
