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
    Command("config", "lakeward.cli.config", "Settings now in force, and where each came from."),
    Command("tier", "lakeward.cli.tier", "Runs a tiering job: rounds from the hot store into the lake."),
    Command("version", "lakeward.cli.version", "Versions of Lakeward and of what it works with."),
)
