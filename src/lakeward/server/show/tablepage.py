# SPDX-License-Identifier: Apache-2.0
"""Data of a table's page about the hot store and its properties; and debt and cost of all tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from lakeward.config.option import Scope
from lakeward.model import TIER, TablePath
from lakeward.protocol.views import TableStatus, WorkStatus
from lakeward.server.services import Services

FROM_TABLE, FROM_SERVER, FROM_DEFAULT = "table", "server", "default"


def properties(services: Services, path: TablePath) -> list[dict[str, Any]]:
    """Every property with its value and its source; what is not Lakeward's own comes last."""
    table_properties = services.store.load_table(path).descriptor.properties
    config = services.coordinator.board.options.config.for_table(table_properties)
    rows = [
        {
            "key": r.key,
            "value": r.text,
            "source": FROM_TABLE
            if r.key in table_properties
            else FROM_DEFAULT
            if r.where == "default"
            else FROM_SERVER,
            "help": r.option.help,
        }
        for r in config.resolved([Scope.TABLE])
        if r.option is not None
    ]
    shown_keys = {row["key"] for row in rows}
    others = [(key, value) for key, value in table_properties.items() if key not in shown_keys]
    return rows + [{"key": key, "value": value, "source": FROM_TABLE, "help": ""} for key, value in others]


def hot_side(services: Services, path: TablePath) -> dict[str, Any]:
    """Log sizes in all and per bucket, and who follows it, how many rows behind."""
    table = services.store.load_table(path)
    sizes = next((s for s in services.store.sizes() if s.table_id == table.table_id), None)
    bounds = services.store.bounds(table)
    ends, now = sum(b.end for b in bounds.values()), time.monotonic()
    consumers = sorted(services.consumers.of_table(table.table_id), key=lambda c: c.reached)
    return {
        "sizes": None if sizes is None else {k: v for k, v in vars(sizes).items() if k not in ("path", "table_id")},
        "buckets": [
            {"bucket": str(b), "start": v.start, "end": v.end, "end_at_ms": v.end_at_ms or None}
            for b, v in sorted(bounds.items())
        ],
        "consumers": [
            {
                "who": c.who,
                "peer": c.peer,
                "lag_rows": max(0, ends - c.reached),
                "seen_ms": round((now - c.seen) * 1000),
            }
            for c in consumers
        ],
    }


def debts(services: Services, may_use: Callable[[TablePath], bool]) -> list[dict[str, Any]]:
    """Upkeep debt of each side, most files first, with the result of its last upkeep."""
    tables = [t for t in services.coordinator.views.status().tables if may_use(t.path)]
    kinds = {work.kind for table in tables for work in table.work if work.kind != TIER}
    ended = [r for kind in kinds for r in reversed(services.coordinator.views.rounds(limit=1_000, kind=kind))]
    last = {(r.path, r.side, r.kind): r for r in ended}
    rows = [
        {
            "path": str(table.path),
            "side": str(table.side),
            "state": str(table.state),
            "files": table.lake_files,
            "delete_files": table.lake_delete_files,
            "bytes": table.lake_bytes,
            "snapshots": table.lake_snapshots,
            "debt_files": work.debt_files if work else None,
            "job": work.job if work else None,
            "failures": work.failures if work else 0,
            "last": last.get((table.path, table.side, work.kind)) if work else None,
        }
        for table in tables
        for work in _upkeep(table)
    ]
    return sorted(rows, key=lambda r: (-(r["debt_files"] or 0), -(r["files"] or 0), r["path"]))


def _upkeep(table: TableStatus) -> Sequence[WorkStatus | None]:
    return [w for w in table.work if w.kind != TIER] or [None]


def costs(services: Services, days: int, may_use: Callable[[TablePath], bool]) -> list[dict[str, Any]]:
    """Per day, side and kind of work."""
    return [vars(c) for c in services.coordinator.views.costs(days) if may_use(TablePath.parse(c.path))]
