# SPDX-License-Identifier: Apache-2.0
"""The producers' own record: each change is written down before it is sent, and again once it was acknowledged or is in
doubt.

It is kept outside the store, so that a store that loses or doubles a row cannot also lose the memory of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

TRIED, ACKED, DOUBTED = "tried", "acked", "doubted"
"""In doubt: the call failed, so the change may or may not be there."""


class RecordWriter:
    """One producer's file. Lines are whole or absent: a reader ignores a last line without its end."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")

    def note(self, state: str, number: int, **facts: Any) -> None:
        self._file.write(json.dumps({"state": state, "n": number, "at": time.time(), **facts}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Change:
    """`kind`: append, upsert or delete. `rows`: sequence numbers of a log table, or keys of a PK table."""

    number: int
    kind: str
    rows: tuple[int, ...]


@dataclass
class Record:
    """What a producer's file says up to now."""

    changes: list[Change] = field(default_factory=list)
    acked: dict[int, float] = field(default_factory=dict)
    doubted: dict[int, float] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Record:
        record = cls()
        for line in _lines(path):
            if line["state"] == TRIED:
                record.changes.append(Change(line["n"], line["kind"], tuple(line["rows"])))
            elif line["state"] == ACKED:
                record.acked[line["n"]] = line["at"]
            else:
                record.doubted[line["n"]] = line["at"]
        return record

    def acked_rows(self) -> set[int]:
        """Log table: rows that must be there."""
        return {r for c in self.changes if c.number in self.acked for r in c.rows}

    def tried_rows(self) -> set[int]:
        """Log table: rows that may be there."""
        return {r for c in self.changes for r in c.rows}

    def by_key(self) -> dict[int, list[Change]]:
        by_key: dict[int, list[Change]] = {}
        for change in self.changes:
            for key in change.rows:
                by_key.setdefault(key, []).append(change)
        return by_key


def allowed_versions(changes: list[Change], acked_before: set[int]) -> set[int | None]:
    """PK table: which versions of a key (None: absent) a read may show that began when `acked_before` were
    acknowledged.

    The newest change acknowledged by then, or any tried after it."""
    newest = max((at for at, c in enumerate(changes) if c.number in acked_before), default=None)
    if newest is None:
        return {None, *(_version(c) for c in changes)}
    return {_version(c) for c in changes[newest:]}


def _version(change: Change) -> int | None:
    return None if change.kind == "delete" else change.number


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
