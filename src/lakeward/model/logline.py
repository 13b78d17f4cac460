# SPDX-License-Identifier: Apache-2.0
"""Log lines: control characters from callers are escaped; stored records that cannot be decoded are skipped, logged
once and kept for status pages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from lakeward.errors import InvalidInput

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LONGEST: Final = 8_000
_LONGEST_STACK: Final = 32_000


class EscapedLines(logging.Formatter):
    """A record is one line; a stack follows in lines that begin with a bar. Whatever does not print is escaped."""

    def __init__(self) -> None:
        super().__init__(LOG_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escape(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        return _barred(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:
        return _barred(stack_info)


def escape(text: str, longest: int = _LONGEST) -> str:
    """As one line that a terminal shows as it is."""
    shown = text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"
    return shown if shown.isprintable() else "".join(c if c.isprintable() else _spelled(c) for c in shown)


def as_lines(text: str) -> str:
    """As lines that a terminal shows as they are."""
    return "\n".join(escape(line) for line in text.split("\n"))


def escape_log() -> None:
    """For every handler that the root logger has now."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(EscapedLines())


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _barred(text: str) -> str:
    """The end of a long one says what went wrong."""
    shown = text if len(text) <= _LONGEST_STACK else f"({len(text)} characters) ...{text[-_LONGEST_STACK:]}"
    return "\n".join(f"  | {escape(line)}" for line in shown.split("\n"))


_log = logging.getLogger(__name__)

NONSENSE = (InvalidInput, ValueError, TypeError, KeyError, AttributeError)
"""Errors that reading raises for a record that no version of Lakeward wrote, or that was stored unchecked."""

_SHOWN = 100

Row = TypeVar("Row")
Record = TypeVar("Record")


class LeftOut:
    """`lines`: one for each, the first hundred."""

    def __init__(self, where: str) -> None:
        self._where, self.lines = where, list[str]()

    def add(self, what: str, reason: object) -> None:
        line = f"{self._where}: {what[:100]} is left out: {str(reason)[:200]}"
        if line not in self.lines and len(self.lines) < _SHOWN:
            self.lines.append(line)
            _log.error("%s", line)

    def sensible(self, what: str, rows: Iterable[Row], read: Callable[[Row], Record]) -> list[Record]:
        """Every record that can be read. `what` and the first field of a row name one that cannot."""
        records = []
        for row in rows:
            try:
                records.append(read(row))
            except NONSENSE as error:
                name = row[0] if isinstance(row, tuple) else row
                self.add(f"{what} {name}", error)
        return records
