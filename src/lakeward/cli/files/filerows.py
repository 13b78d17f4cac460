# SPDX-License-Identifier: Apache-2.0
"""Rows of a file with where they stand in it, and those that cannot be taken."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from lakeward.cli.files.cellformat import CellFormat
from lakeward.cli.files.problems import Problem, ProblemReport
from lakeward.errors import InvalidRequest

BadText = tuple[str, str]
"""The text of a row, and its format as `protocol.quarantine.BadRow` has it."""

CHUNK_ROWS = 10_000
"""Rows that are read, checked and sent together. A resumed write cuts the file at the same rows."""


@dataclass(frozen=True)
class Place:
    """A line of a text file or a row of another, counted from 1; `at`: the column, by name or number."""

    file: str
    unit: str
    number: int
    at: str | None = None

    @property
    def short(self) -> str:
        return f"in {self.unit} {self.number}"

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.number}" + ("" if self.at is None else f", column {self.at}")


@dataclass(frozen=True)
class FileRows:
    """`rows`: a list of dicts or a record batch; `place(i)` says where row i stands; `part`: how much of the file is
    read, up to 1.0 with these rows, None where that is not known."""

    rows: Any
    place: Callable[[int], Place]
    part: float | None = None

    def __len__(self) -> int:
        return len(self.rows) if isinstance(self.rows, list) else int(self.rows.num_rows)

    def without(self, row: int) -> FileRows:
        """All but one, each still in its place."""
        if isinstance(self.rows, list):
            rest: Any = [*self.rows[:row], *self.rows[row + 1 :]]
        else:
            import pyarrow as pa

            rest = self.rows.take(pa.array([i for i in range(len(self)) if i != row], pa.int64()))
        return FileRows(rest, lambda i: self.place(i + (i >= row)), self.part)


class Rejects:
    """Where rows go that cannot be taken: into a CSV file with place, value and reason, or into a report that becomes
    an error. After a first one of the latter the rest of the file is read for its problems alone."""

    def __init__(self, path: Path | None = None) -> None:
        self.count = 0
        self.report: ProblemReport | None = None
        self._is_endless = False
        self._file = None if path is None else path.open("w", newline="", encoding="utf-8")
        self._writer = None if self._file is None else csv.writer(self._file)
        if self._writer is not None:
            self._writer.writerow(("file", "line", "column", "value", "reason"))

    def begin(self, file: str, cells: CellFormat, *, is_endless: bool = False) -> None:
        """A file, or the same one again from its first line. What has no end stops at its first problem."""
        self._is_endless = is_endless
        if not self.is_skipping:
            self.report = ProblemReport(file, cells)

    def add(
        self, place: Place, value: str, reason: str, problem: Problem | None = None, row: BadText | None = None
    ) -> None:
        """`row`: the whole row, where `value` is not."""
        self.count += 1
        if self._writer is not None:
            self._writer.writerow((place.file, place.number, place.at or "", value, reason))
            return
        problem = problem or Problem(reason.replace(repr(value), "").strip() if value else reason, reason)
        if self.report is None:
            self.report = ProblemReport(place.file, CellFormat())
        self.report.add(place, value, problem)
        if self._is_endless:
            self.raise_problems()

    def forget(self) -> None:
        """The rejects since the last call were kept by an earlier run of the write."""

    def flush(self, key: str) -> None:
        """Before a chunk's rows are sent: keeps its rejects, under a key that a resumed write repeats."""

    def refuse(self, place: Place, reason: str) -> NoReturn:
        raise InvalidRequest(what=str(place), reason=reason)

    @property
    def is_refused(self) -> bool:
        """A problem was found that stops the file."""
        return self.report is not None and not self.report.is_empty

    def raise_problems(self) -> None:
        """At a file's end. Raises `InvalidRequest` with all of them."""
        if self.report is not None and not self.report.is_empty:
            raise self.report.error()

    @property
    def is_skipping(self) -> bool:
        return self._writer is not None

    def __enter__(self) -> Rejects:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True, kw_only=True)
class FileShape:
    """How people say their files are written; what is None is found out."""

    delimiter: str | None = None
    cells: CellFormat = field(default_factory=CellFormat)
    encoding: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises `InvalidRequest` for what no file can be read by."""
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise InvalidRequest(what=f"--delimiter {self.delimiter}", reason="it is one character")
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            reason = "it is not known; such as utf-8, utf-16, latin-1"
            raise InvalidRequest(what=f"--encoding {self.encoding}", reason=reason) from None

    def check_names(self, file: str, names: Collection[str]) -> None:
        """Raises `InvalidRequest` for a renamed column that the file does not have."""
        if missing := [name for name in self.renamed if name not in names]:
            reason = f"--columns names {', '.join(map(repr, missing))}; the file has {', '.join(names)}"
            raise InvalidRequest(what=f"file {file}", reason=reason)


def parse_renames(text: str | None) -> dict[str, str]:
    """`"Order No=id,Sum=total"`: names in the file -> names in the table."""
    pairs = [part.partition("=") for part in (text or "").split(",") if part.strip()]
    wrong = [name for name, sign, column in pairs if not (name.strip() and sign and column.strip())]
    if wrong:
        raise InvalidRequest(what=f"--columns {text}", reason="write it as 'IN FILE=IN TABLE, ...'")
    return {name.strip(): column.strip() for name, _, column in pairs}
