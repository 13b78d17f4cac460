# SPDX-License-Identifier: Apache-2.0
"""Messages about rows that a table did not take: what is stored of them, listed, and written again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeward.model import TablePath


@dataclass(frozen=True, kw_only=True)
class BadRow:
    """`number`: its place in the source. `row`: its text as it came, a JSON object where it has names. `column` is
    empty where the whole row is meant."""

    number: int
    row: str
    reason: str
    column: str = ""
    format: str = "json"
    """`json` (values are JSON's) or `csv` (values are texts)."""


@dataclass(frozen=True, kw_only=True)
class QuarantineRows:
    """Rows of a client that reads files itself. Sent again with the same `key`, nothing is stored twice."""

    source: str
    operation: str
    key: str
    rows: tuple[BadRow, ...]


@dataclass(frozen=True, kw_only=True)
class EvolveTable:
    """Columns that a file's rows have and their table has not, for a table whose contract is `evolve`."""

    columns: tuple[dict[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class QuarantinedRow:
    id: str
    at_ms: int
    source: str
    operation: str
    bad: BadRow


@dataclass(frozen=True, kw_only=True)
class QuarantineStored:
    path: TablePath
    quarantine: TablePath
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class QuarantineList:
    """`rows`: the oldest first, those that wait to be corrected."""

    path: TablePath
    quarantine: TablePath
    waiting: int = 0
    redriven: int = 0
    rows: tuple[QuarantinedRow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RedriveRows:
    """`ids`: these rows alone; none: all that wait. `corrected`: id -> the row's new text."""

    ids: tuple[str, ...] = ()
    corrected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Redriven:
    """`refused`: id -> why it still does not fit; it stays in the quarantine. `waiting`: rows that this call did not
    look at."""

    path: TablePath
    redriven: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    waiting: int = 0
