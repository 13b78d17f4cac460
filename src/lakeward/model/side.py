# SPDX-License-Identifier: Apache-2.0
"""Sides and kinds of work: what a table has in the lakes, and what can be done to it there.

A side is one lake table that is kept up to date from the table's log: (lake, content). What is handed out, leased,
recorded and shown is (table, side, kind).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, NewType

from lakeward.model.ids import TableId

WorkKind = NewType("WorkKind", str)
"""A kind of work's name. Kinds are registered by name where they run, so this is no closed list."""

TIER = WorkKind("tier")
"""Bring the side up to date: a round."""

COMPACT = WorkKind("compact")
"""Rewrite files of the side so that readers have less to do."""

_OLD_KINDS = {"round": TIER, "compaction": COMPACT}
"""Older names of kinds of work, which older jobs and data folders use."""


def parse_kind(name: str) -> WorkKind:
    return _OLD_KINDS.get(name, WorkKind(name))


class Content(StrEnum):
    STATE = "state"
    """All rows of a log table, the newest row of each key of a PK table."""

    CHANGELOG = "changelog"
    """Every change, append-only."""


@dataclass(frozen=True, order=True)
class SideName:
    """Names a side within its table: `main`, or `main:changelog`."""

    lake: str = "default"
    content: Content = Content.STATE

    def __str__(self) -> str:
        return self.lake if self.content is Content.STATE else f"{self.lake}:{self.content}"

    @classmethod
    def parse(cls, text: str) -> SideName:
        """The inverse of `str`. Raises `ValueError` for anything else."""
        lake, _, content = text.partition(":")
        if not lake:
            raise ValueError(f"{text!r} names no lake")
        return cls(lake, Content(content) if content else Content.STATE)


DEFAULT_SIDE = SideName()
"""The one side of a table whose server has one lake."""


LAKES_PROPERTY = "table.datalake.lakes"


def named_sides(properties: Mapping[str, str]) -> tuple[SideName, ...]:
    """The sides that a table's properties name, in order; none: it has the one of a server with one lake."""
    names = [name.strip() for name in properties.get(LAKES_PROPERTY, "").split(",")]
    return tuple(SideName(name) for name in names if name)


CHANGELOG_PROPERTY = "table.datalake.changelog"
NO_CHANGELOG = "none"
RETENTION_PROPERTY = "table.datalake.changelog.retention"


def changelog_side(properties: Mapping[str, str]) -> SideName | None:
    """The side with every change, where a table has one."""
    lake = properties.get(CHANGELOG_PROPERTY, "").strip()
    return None if lake in ("", NO_CHANGELOG) else SideName(lake, Content.CHANGELOG)


def first_side(properties: Mapping[str, str]) -> SideName | None:
    return next(iter(named_sides(properties)), None)


class SideId(NamedTuple):
    """Names a side among all: what state, leases, ledger and intents are kept by."""

    table_id: TableId
    name: SideName = DEFAULT_SIDE

    def __str__(self) -> str:
        return f"{self.table_id}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> SideId:
        table_id, _, name = text.partition("/")
        return cls(TableId(table_id), SideName.parse(name))
