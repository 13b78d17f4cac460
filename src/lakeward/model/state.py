# SPDX-License-Identifier: Apache-2.0
"""Tiering states of a table and the legal moves between them, as data; the diagram is rendered from it."""

from __future__ import annotations

from enum import StrEnum

from lakeward.errors import IllegalTransition


class TableState(StrEnum):
    NEW = "new"
    INITIALIZED = "initialized"
    SCHEDULED = "scheduled"
    PENDING = "pending"
    TIERING = "tiering"
    TIERED = "tiered"
    FAILED = "failed"
    QUARANTINED = "quarantined"
    PAUSED = "paused"
    DISABLED = "disabled"
    DROPPED = "dropped"


_S = TableState
_LIVE = frozenset(set(TableState) - {_S.DROPPED})

ENTERED_FROM: dict[TableState, frozenset[TableState | None]] = {
    _S.NEW: frozenset({None}),
    _S.INITIALIZED: frozenset({None}),
    _S.SCHEDULED: frozenset({_S.NEW, _S.INITIALIZED, _S.TIERED, _S.PAUSED, _S.QUARANTINED, _S.DISABLED}),
    _S.PENDING: frozenset({_S.SCHEDULED, _S.FAILED, _S.TIERED, _S.TIERING}),
    _S.TIERING: frozenset({_S.PENDING}),
    _S.TIERED: frozenset({_S.TIERING}),
    _S.FAILED: frozenset({_S.TIERING}),
    _S.QUARANTINED: frozenset({_S.FAILED}),
    _S.PAUSED: frozenset(_LIVE - {_S.PAUSED, _S.DISABLED}),
    _S.DISABLED: frozenset({None, *(_LIVE - {_S.DISABLED})}),
    _S.DROPPED: frozenset(_LIVE),
}
"""Target -> the states it may be entered from; None stands for "no record yet"."""


def check_transition(table: str, source: TableState | None, target: TableState) -> None:
    """Raises `IllegalTransition` unless the move is in `ENTERED_FROM`."""
    if source not in ENTERED_FROM[target]:
        raise IllegalTransition(table=table, source=str(source), target=str(target))


def is_legal(source: TableState | None, target: TableState) -> bool:
    return source in ENTERED_FROM[target]


def render_diagram() -> str:
    """The moves as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2"]
    for target, sources in ENTERED_FROM.items():
        for source in sorted(sources, key=str):
            lines.append(f"    {source or '[*]'} --> {target}")
    return "\n".join(lines)
