# SPDX-License-Identifier: Apache-2.0
"""A table's name, and how errors get it: a wrong schema or file does not know its table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakeward.errors import InvalidRequest, InvalidTable, LakewardError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,199}")
_RULE = "a name has letters, digits, _ and -, does not begin with -, and is at most 200 long"


@dataclass(frozen=True, order=True)
class TablePath:
    """`database.table`. Both parts name folders, so what they may hold is narrow."""

    database: str
    table: str

    def __post_init__(self) -> None:
        for part, value in (("database", self.database), ("table", self.table)):
            if not _NAME.fullmatch(value):
                raise InvalidTable(
                    table=f"{self.database}.{self.table}",
                    field=part,
                    value=value,
                    reason=_RULE,
                )

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> TablePath:
        database, dot, table = text.partition(".")
        if not dot:
            raise InvalidTable(table=text, field="name", value=text, reason="write it as database.table")
        return cls(database, table)


def check_database(name: str) -> None:
    """Raises `InvalidRequest` for what cannot be a database."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(what=f"database {name[:80]!r}", reason=_RULE)


UNNAMED = "?"


@contextmanager
def of_table(path: str) -> Iterator[None]:
    """Adds the table to errors of any kind that are raised inside and do not name one."""
    try:
        yield
    except LakewardError as error:
        if path and getattr(error, "table", None) == UNNAMED:
            error.table = path  # type: ignore[attr-defined]
        elif path and isinstance(error, InvalidRequest) and path not in error.message:
            error.what = f"table {path}: {error.what}"
        raise
