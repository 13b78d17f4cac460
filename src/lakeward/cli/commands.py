# SPDX-License-Identifier: Apache-2.0
"""Which module holds which command. `lakeward --help` shows this table without importing any of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """`module` has `register(app: typer.Typer) -> None`, which adds the command or group called `name` to the app."""

    name: str
    module: str
    help: str


COMMANDS = (
    Command("backup", "lakeward.cli.backup", "The server's folder: copied while it runs, and put back."),
    Command("catalog", "lakeward.cli.catalog", "The lake's catalog: register its tables elsewhere."),
    Command("changes", "lakeward.cli.changes", "Every change of a table since a moment, an offset or a snapshot."),
    Command("chaos", "lakeward.cli.run.chaos", "Hurts a real Lakeward at every step, and says which invariants held."),
    Command("config", "lakeward.cli.config", "Settings now in force, and where each came from."),
    Command("console", "lakeward.cli.run.console", "Serves the dashboard of an Apache Fluss cluster, read-only."),
    Command("cut", "lakeward.cli.cut", "One moment across tables: create, list, drop."),
    Command("database", "lakeward.cli.database", "Databases: the lake of new tables, and who may use each."),
    Command("demo", "lakeward.cli.run.demo", "Shows Lakeward at work, and checks that nothing is lost or doubled."),
    Command("doctor", "lakeward.cli.doctor.command", "Says what is wrong or will be, and the command that mends it."),
    Command("explain", "lakeward.cli.status", "Where a table's lag comes from, and what its next round would do."),
    Command("ingest", "lakeward.cli.ingest", "Brings rows from Kafka or Postgres into tables, each once."),
    Command("jobs", "lakeward.cli.status", "Tiering jobs: who is live, who is missing, what each does now."),
    Command("lake", "lakeward.cli.lake", "The server's lakes: list, check."),
    Command("maintain", "lakeward.cli.maintain", "What a compaction of a lake table would do; asks for one."),
    Command("oracle", "lakeward.cli.run.oracle", "Compares every reader of a hurt Lakeward with a plain dict."),
    Command("pause", "lakeward.cli.operate", "Stops rounds of a table until it is resumed."),
    Command("preflight", "lakeward.cli.doctor.command", "Says what would go wrong at the first start."),
    Command("quarantine", "lakeward.cli.quarantine", "Rows that a table did not take: list, show, redrive."),
    Command("read", "lakeward.cli.files.rows", "Reads a table: lake history plus hot tail."),
    Command("resume", "lakeward.cli.operate", "Ends a pause or a quarantine."),
    Command("rounds", "lakeward.cli.status", "Rounds that ended, each with its phases."),
    Command("server", "lakeward.cli.run.server", "The server: hot store, coordinator, catalog, dashboard."),
    Command("source", "lakeward.cli.source", "Sources of rows: create, list, show, pause, resume, hold, drop."),
    Command("sql", "lakeward.cli.files.rows", "Runs a query with DuckDB over union reads."),
    Command("status", "lakeward.cli.status", "Every table's freshness and lag, and whether all is well."),
    Command("table", "lakeward.cli.table", "Tables: create, alter, drop, list, show, adopt, resync."),
    Command("tier", "lakeward.cli.run.tier", "Runs a tiering job: rounds from the hot store into the lake."),
    Command("tier-now", "lakeward.cli.operate", "Returns when everything acknowledged before the call is in the lake."),
    Command("top", "lakeward.cli.top", "A live view of tiles, tables and jobs in the terminal."),
    Command("trace", "lakeward.cli.trace", "One row's way: log, round, file and position, compactions."),
    Command("up", "lakeward.cli.run.up", "Runs the server and one local job, supervised, for one machine."),
    Command("verify", "lakeward.cli.verify", "Checks that every row is in the lake exactly once."),
    Command("version", "lakeward.cli.version", "Versions of Lakeward and of what it works with."),
    Command("what-if", "lakeward.cli.whatif", "Which tables would be late with more tables or fewer slots."),
    Command("write", "lakeward.cli.files.rows", "Writes rows from a file: JSON lines, CSV, Parquet, Arrow."),
)
