# SPDX-License-Identifier: Apache-2.0
"""All problems of a file in one report: each kind once, with the first lines it occurs in and the option that fixes
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakeward.cli.files.cellformat import CellFormat, DateOrder
from lakeward.errors import InvalidRequest

if TYPE_CHECKING:
    from lakeward.cli.files.filerows import Place

SHOWN_LINES = 10
_SHOWN_VALUES = 3
_LARGEST_VALUE = 60


@dataclass(frozen=True)
class Fix:
    """A change to a `CellFormat`, or `words` where no setting helps."""

    words: str = ""
    decimal: str | None = None
    thousands: str | None = None
    date_order: DateOrder | None = None
    date_format: str | None = None
    true_word: str | None = None
    false_word: str | None = None
    null: str | None = None

    def applied(self, cells: CellFormat) -> CellFormat:
        changed = replace(
            cells,
            decimal=self.decimal or cells.decimal,
            thousands=self.thousands or cells.thousands.replace(self.decimal or "", ""),
            date_order=self.date_order or cells.date_order,
            date_format=self.date_format or cells.date_format,
            is_known=cells.is_known or bool(self.decimal or self.thousands),
        )
        return replace(
            changed,
            true_words=_with(changed.true_words, self.true_word),
            false_words=_with(changed.false_words, self.false_word),
            nulls=_with(changed.nulls, self.null),
        )


def _with(words: tuple[str, ...], more: str | None) -> tuple[str, ...]:
    return words if more is None or more in words else (*words, more)


@dataclass(frozen=True)
class Problem:
    """A problem with one cell or line. `kind` is the same for all problems that one sentence can describe; `reason` is
    about this one alone."""

    kind: str
    reason: str
    fix: Fix = field(default_factory=Fix)


@dataclass
class _Kind:
    unit: str
    count: int = 0
    lines: list[int] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)

    def add(self, line: int, value: str, fix: Fix) -> None:
        self.count += 1
        if len(self.lines) < SHOWN_LINES:
            self.lines.append(line)
        if len(self.values) < _SHOWN_VALUES and value not in self.values:
            self.values.append(value)
        if fix not in self.fixes and len(self.fixes) < SHOWN_LINES:
            self.fixes.append(fix)


class ProblemReport:
    """Problems of one file. Bounded: a kind keeps its first lines, and kinds are few."""

    def __init__(self, file: str, cells: CellFormat) -> None:
        self.file, self.cells = file, cells
        self.count = 0
        self._kinds: dict[tuple[str | None, str], _Kind] = {}
        self._first: tuple[str, str] = ("", "")

    def add(self, place: Place, value: str, problem: Problem) -> None:
        if not self.count:
            self._first = (str(place), problem.reason)
        self.count += 1
        kind = self._kinds.get((place.at, problem.kind))
        if kind is None:
            kind = self._kinds[place.at, problem.kind] = _Kind(place.unit)
        kind.add(place.number, value, problem.fix)

    @property
    def is_empty(self) -> bool:
        return not self.count

    def error(self) -> InvalidRequest:
        """One problem by its own place and reason, several as a list."""
        if self.count == 1:
            hint = self._hint(next(iter(self._kinds.values())))
            return InvalidRequest(what=self._first[0], reason=f"{self._first[1]}{hint and f'; {hint}'}")
        lines = [self._line(column, words, kind) for (column, words), kind in self._kinds.items()]
        return InvalidRequest(what=f"file {self.file}", reason="\n".join([self._title(), *lines, *self._together()]))

    def _title(self) -> str:
        return (
            f"{self.count:,} problems of {len(self._kinds)} kinds"
            if len(self._kinds) > 1
            else (f"{self.count:,} problems of one kind")
        )

    def _line(self, column: str | None, words: str, kind: _Kind) -> str:
        where = f"{kind.unit}{'s' if kind.count > 1 else ''} {', '.join(map(str, kind.lines))}"
        more = f" and {kind.count - len(kind.lines):,} more" if kind.count > len(kind.lines) else ""
        examples = ", ".join(f"{v!r:.{_LARGEST_VALUE}}" for v in kind.values)
        subject = "" if column is None else f"column {column}: "
        hint = self._hint(kind)
        return f"  {subject}{words} ({examples}), {where}{more}{hint and f'; {hint}'}"

    def _hint(self, kind: _Kind) -> str:
        cells = _applied(self.cells, kind.fixes)
        if cells != self.cells:
            return f"pass {cells.command_line}"
        return next((f.words for f in kind.fixes if f.words), "")

    def _together(self) -> list[str]:
        fixable = [f for kind in self._kinds.values() for f in kind.fixes]
        cells = _applied(self.cells, fixable)
        changed = {_applied(self.cells, kind.fixes) for kind in self._kinds.values()} - {self.cells}
        return [f"  together: {cells.command_line}"] if len(changed) > 1 else []


def _applied(cells: CellFormat, fixes: Iterable[Fix]) -> CellFormat:
    for fix in fixes:
        try:
            cells = fix.applied(cells)
        except InvalidRequest:  # contradicts another one: the file has both kinds
            continue
    return cells
