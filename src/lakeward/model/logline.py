# SPDX-License-Identifier: Apache-2.0
"""Log lines that only we begin: names, paths and errors come from callers, and may have line ends in them."""

from __future__ import annotations

import logging
from typing import Final

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
