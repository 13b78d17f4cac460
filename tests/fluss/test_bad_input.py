# SPDX-License-Identifier: Apache-2.0
"""Commands on a cluster with names of tables that are wrong: one paragraph, and what to do next."""

from __future__ import annotations

import pytest

from lakeward.cli import app
from tests.fluss.steps import DATABASE, EVENTS, Append, MakeTable, events
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

COMMANDS = (
    ("maintain",),
    ("maintain", "--now"),
    ("rounds",),
    ("explain",),
    ("tier-now", "--limit", "5"),
    ("verify",),
    ("verify", "--deep"),
)
NOT_FOUND, WRONG_INPUT = 3, 2


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_table_that_is_not_there_or_not_tiered_or_no_name(
    world: FlussWorld, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    bootstrap, hot = world.cluster.bootstrap, "_".join(("hot", *command)).replace("-", "")
    world.produce(
        MakeTable(name=hot, schema=EVENTS, buckets=1, properties={"table.datalake.enabled": "false"}),
        Append(table=hot, rows=events(0, 3)),
    )

    def call(table: str) -> tuple[int, str]:
        name, *rest = command
        code = app.run([name, table, *rest, "--fluss", bootstrap])
        told = capsys.readouterr()
        return code, (told.err + (told.out if name == "verify" else "")).strip()

    shown = f"`lakeward status --fluss {bootstrap}` shows its lake tables"
    for table in (f"{DATABASE}.nothere", "nowhere.nothere"):
        assert call(table) == (NOT_FOUND, f"lakeward: there is no table {table} in Fluss; {shown}")
    code, words = call(f"{DATABASE}.{hot}")
    assert code == (1 if command[0] == "verify" else WRONG_INPUT)
    assert f"table {DATABASE}.{hot}: table.datalake.enabled 'false': Fluss tiers only tables where it is true" in words
    for table in ("orders", ""):
        assert call(table) == (WRONG_INPUT, f"lakeward: table {table}: name '{table}': write it as database.table")


def test_what_is_asked_for_is_there_already(world: FlussWorld, capsys: pytest.CaptureFixture[str]) -> None:
    world.produce(MakeTable(name="empty", schema=EVENTS, buckets=1, freshness="1h"))
    assert app.run(["tier-now", f"{DATABASE}.empty", "--fluss", world.cluster.bootstrap]) == 0
    assert capsys.readouterr().out == f"{DATABASE}.empty was in the lake already\n"
