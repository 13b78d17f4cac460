# SPDX-License-Identifier: Apache-2.0
"""How clients and tables look in a shell or notebook: schema, freshness, lag. One short question to the server, and
never an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.errors import LakewardError
from lakeward.protocol import routes

if TYPE_CHECKING:
    from lakeward.client.client import Client
    from lakeward.client.table import Table

_LIMIT_S = 1.0
_MOST_TABLES = 20


def show_table(table: Table) -> str:
    info = table.info
    columns = ", ".join(f"{c.name} {c.type}" for c in info.schema.columns)
    facts = [f"primary key {', '.join(info.descriptor.primary_key)}"] if info.is_pk else ["log table"]
    if info.descriptor.partition_keys:
        facts.append(f"partitioned by {', '.join(info.descriptor.partition_keys)}")
    sides = _ask(table.client, routes.STATUS)
    shown = None if sides is None else [t for t in sides["tables"] if t["path"] == table.path]
    return f"Table {table.path} ({columns})\n  {', '.join(facts)}; {spell_sides(shown)}"


def show_client(client: Client) -> str:
    status = _ask(client, routes.STATUS)
    if status is None:
        return f"Client of {client.url}, which does not answer now"
    tables = status["tables"]
    lines = [f"  {t['path']}: {_lag(t)}" for t in tables[:_MOST_TABLES]]
    more = [f"  and {len(tables) - _MOST_TABLES:,} more"] if len(tables) > _MOST_TABLES else []
    named = "1 lake table" if len(tables) == 1 else f"{len(tables):,} lake tables"
    return "\n".join([f"Client of {client.url}, {named}", *lines, *more])


def _ask(client: Client, path: str) -> Any:
    try:
        return client.server.ask("GET", path, timeout_s=_LIMIT_S, retry_s=0)
    except (LakewardError, OSError):
        return None


def spell_sides(sides: list[dict[str, Any]] | None) -> str:
    if sides is None:
        return "the server does not answer now"
    if len(sides) == 1:
        return _lag(sides[0])
    return "; ".join(f"{t['side']}: {_lag(t)}" for t in sides) or "in no lake"


def _lag(side: dict[str, Any]) -> str:
    if side["state"] == "disabled" and not side.get("blocked"):
        return "in no lake"
    late = " (late)" if side["lag_ms"] > side["freshness_ms"] else ""
    return f"freshness {side['freshness_ms'] / 1_000:g} s, lag {side['lag_ms'] / 1_000:.1f} s{late}, {side['state']}"
