# SPDX-License-Identifier: Apache-2.0
"""`lakeward config`: every option with its value and where that came from, or one of them with its help."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lakeward.config import Resolved, Scope, resolve
from lakeward.config.config import find_nearest
from lakeward.config.option import variable_name
from lakeward.errors import UnknownOption


def register(app: typer.Typer) -> None:
    app.command("config")(show)


def show(
    key: Annotated[str | None, typer.Argument(help="One option; without it all of them.")] = None,
    scope: Annotated[
        Scope | None, typer.Option("--scope", help="Only options of the server, job, table or client.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Settings now in force here, and where each came from: file, environment or default.

    Example: lakeward config table.datalake.freshness"""
    rows = resolve().resolved([scope] if scope else Scope)
    if key is not None:
        rows = [row for row in rows if row.key == key]
        if not rows:
            raise UnknownOption(where="lakeward config", key=key, nearest=find_nearest(key))
    if as_json:
        print(json.dumps([{"key": row.key, "value": row.text, "from": row.where} for row in rows]))
    elif key is not None:
        print("\n".join(describe(rows[0])))
    else:
        width = max(len(row.key) for row in rows)
        print("\n".join(f"{row.key:<{width}}  {row.text or '-':<24}  {row.where}" for row in rows))


def describe(row: Resolved) -> list[str]:
    """One option at length."""
    lines = [f"{row.key} = {row.text or '-'}  (from: {row.where})"]
    if row.option is None:
        return lines
    option = row.option
    lines += [option.help, f"kind: {option.kind.name}, {option.kind.allowed}", f"default: {option.default_text or '-'}"]
    lines.append(f"environment: {variable_name(option.key)}" + (f" or {option.variable}" if option.variable else ""))
    if option.fluss:
        lines.append(f"in Fluss: {option.fluss}")
    return lines
