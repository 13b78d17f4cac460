# SPDX-License-Identifier: Apache-2.0
"""Stored records that make no sense: left out where they are read, told once in the log, and kept for status pages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from lakeward.errors import InvalidInput

_log = logging.getLogger(__name__)

NONSENSE = (InvalidInput, ValueError, TypeError, KeyError, AttributeError)
"""What reading a record raises that no version of ours wrote, or that a peer was once believed."""

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
