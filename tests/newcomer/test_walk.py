# SPDX-License-Identifier: Apache-2.0
"""The first five minutes: an awkward CSV file becomes a lake table that DuckDB reads through the catalog, in five
commands, and a German one answers a query after four, each with the words that a newcomer sees.
"""

from __future__ import annotations

import csv
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest

from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until

pytestmark = pytest.mark.spark

DUCKDB = """
import lakeward.duckdb
with lakeward.duckdb.connect() as duck:
    figures = 'count(*), sum("Order No"), count("Note"), min("Postcode"), max("Placed")'
    print(duck.sql(f"SELECT {figures} FROM lake.shop.orders").fetchone())
"""


@dataclass(frozen=True)
class Step:
    """One command of the walk. `words` stand in what it prints."""

    command: tuple[str, ...]
    words: tuple[str, ...]


def steps(rows: int) -> tuple[Step, ...]:
    last = datetime(2026, 1, 1) + timedelta(seconds=rows - 1)
    found = (rows, rows * (rows - 1) // 2, len(range(0, rows, 3)), "01067", last)
    return (
        Step(
            ("lakeward", "table", "create", "shop.orders", "--from", "orders.csv", "--yes", "--freshness", "1 min"),
            ("Order No  BIGINT", "Postcode  STRING", "primary key: Order No", "made shop.orders", "lakeward write"),
        ),
        Step(("lakeward", "write", "shop.orders", "orders.csv"), (f"{rows:,} rows written to shop.orders",)),
        Step(("lakeward", "tier-now", "shop.orders"), ("shop.orders is in the lake",)),
        Step(("python", "-c", DUCKDB), (str(found),)),
    )


def german_steps(rows: int) -> tuple[Step, ...]:
    """`{bring its rows in}` is the command that the step before printed after these words."""
    sold = [n for n in range(rows) if n % 3]
    answer = (f'"n": {len(sold)}', f'"cents": {sum(cents_of(n) for n in sold)}', '"day": "2026-12-28"')
    query = 'SELECT count(*) AS n, CAST(sum("Betrag") * 100 AS BIGINT) AS cents, max("Datum") AS day'
    return (
        Step(
            ("lakeward", "table", "create", "laden.verkauf", "--from", "verkauf.csv", "--yes"),
            ("Betrag  DECIMAL(18, 2)", "Datum   DATE", "Aktiv   BOOLEAN", "cells are read with --locale de --null -"),
        ),
        Step(("{bring its rows in}",), (f"{rows:,} rows written to laden.verkauf",)),
        Step(("lakeward", "sql", f'{query} FROM laden.verkauf WHERE "Aktiv"', "--json"), answer),
    )


def cents_of(n: int) -> int:
    return n * 137 % 2_000_000


def write_german(file: Path, rows: int) -> None:
    """As a German Excel writes it: semicolons, 1.681,50, 31.12.2026, ja and nein, latin-1."""
    with file.open("w", encoding="latin-1", newline="") as out:
        out.write("Nr;Kunde;PLZ;Betrag;Menge;Datum;Aktiv\r\n")
        for n in range(rows):
            amount = f"{cents_of(n) / 100:,.2f}".translate(str.maketrans(",.", ".,"))
            amount_and_more = f"{amount};{'-' if n % 7 == 0 else n % 7};{n % 28 + 1}.{n % 12 + 1:02}.2026"
            out.write(f"{n};Jörg {n};0{1067 + n % 9:04};{amount_and_more};{'ja' if n % 3 else 'nein'}\r\n")


def write_awkward(file: Path, rows: int) -> None:
    """Not UTF-8, semicolons, names with blanks, line ends and quotes in cells, empty cells, zeros in front."""
    with file.open("w", encoding="latin-1", newline="") as out:
        writer = csv.writer(out, delimiter=";", lineterminator="\r\n")
        writer.writerow(("Order No", "Customer", "Note", "Postcode", "Sum", "Placed"))
        for n in range(rows):
            note = f'said "no; {n}"\nand left' if n % 3 == 0 else ""
            placed = datetime(2026, 1, 1) + timedelta(seconds=n)
            writer.writerow((n, f"Jörg {n}", note, f"0{1067 + n % 9:04}", f"{n / 4}" if n % 5 else "", placed))


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Path]:
    """The first command. It stays: the others find it by the folder that they run in."""
    command = [sys.executable, "-m", "lakeward.cli", "up", "--port", str(free_port()), "--master", "local[2,4]"]
    log = tmp_path / "up.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=tmp_path, env=plain_environment())
    try:
        wait_until(lambda: "Lakeward is up" in log.read_text(), what="lakeward up", state=log.read_text)
        yield tmp_path
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        assert process.wait(120) == 0, log.read_text()
        assert not psutil.wait_procs(children, timeout=120)[1], "what it started ends with it"
    finally:
        if process.poll() is None:
            for child in (*psutil.Process(process.pid).children(recursive=True), process):
                child.kill()
        process.wait()


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("LAKEWARD_SERVER")}


@pytest.mark.parametrize("rows", [2_000, pytest.param(200_000, marks=pytest.mark.soak)])
def test_an_own_file_is_a_lake_table_after_five_commands(up: Path, rows: int) -> None:
    write_awkward(up / "orders.csv", rows)
    walk = steps(rows)
    assert len(walk) + 1 <= 5
    take_steps(up, walk)


@pytest.mark.parametrize("rows", [2_000, pytest.param(300_000, marks=pytest.mark.soak)])
def test_a_german_file_answers_a_query_after_four_commands(up: Path, rows: int) -> None:
    write_german(up / "verkauf.csv", rows)
    walk = german_steps(rows)
    assert len(walk) + 1 <= 4
    take_steps(up, walk)


def take_steps(folder: Path, walk: tuple[Step, ...]) -> None:
    printed = ""
    for step in walk:
        command = list(step.command)
        if command[0].startswith("{"):
            command = shlex.split(printed.split(f"{command[0][1:-1]}: ")[1].splitlines()[0])
        program = [sys.executable, "-m", "lakeward.cli"] if command[0] == "lakeward" else [sys.executable]
        run = subprocess.run(
            [*program, *command[1:]], capture_output=True, text=True, cwd=folder, env=plain_environment(), timeout=180
        )
        printed = run.stdout + run.stderr
        assert run.returncode == 0, f"{command}: {printed}"
        for words in step.words:
            assert words in printed, f"{command} does not say {words!r}: {printed}"
        assert "Traceback" not in printed
        assert "poorly aligned" not in printed
