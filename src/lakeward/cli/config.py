# SPDX-License-Identifier: Apache-2.0
"""`lakeward config`: every option with its value and where that came from, one of them with its help, or those below a
prefix."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lakeward.cli.output import note
from lakeward.config import Config, Resolved, Scope, resolve
from lakeward.config.config import find_nearest
from lakeward.config.option import variable_name
from lakeward.errors import LakewardError, UnknownOption


def register(app: typer.Typer) -> None:
    app.command("config")(show)


def show(
    key: Annotated[str | None, typer.Argument(help="One option, or what several begin with; without it all.")] = None,
    scope: Annotated[
        Scope | None, typer.Option("--scope", help="Only options of the server, job, table or client.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Settings now in force here, and where each came from: file, environment or default.

    Example: lakeward config table.datalake.freshness"""
    config, problem = _load()
    rows = config.resolved([scope] if scope else Scope)
    if key is not None:
        rows = [r for r in rows if r.key == key] or [r for r in rows if r.key.startswith(f"{key}.")]
        if not rows:
            raise UnknownOption(where="lakeward config", key=key, nearest=find_nearest(key))
    if as_json:
        print(json.dumps([{"key": row.key, "value": row.text, "from": row.where} for row in rows]))
    elif rows[0].key == key:
        print("\n".join(describe(rows[0])))
    else:
        width = max(len(row.key) for row in rows)
        print("\n".join(f"{row.key:<{width}}  {row.text or '-':<24}  {row.where}" for row in rows))
    if problem is not None:
        raise problem


def _load() -> tuple[Config, LakewardError | None]:
    """Settings that are wrong are no reason to show none: the defaults then, and what is wrong."""
    try:
        return resolve(), None
    except LakewardError as error:
        note("these are the defaults, because the settings given here are wrong:")
        return Config(()), error


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
