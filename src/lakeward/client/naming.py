# SPDX-License-Identifier: Apache-2.0
"""Errors get the name of the table they are about: a schema that is wrong does not know whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.errors import InvalidRequest, InvalidTable

UNNAMED = "?"
READ_EXTRA = "iceberg"


@contextmanager
def of_table(path: str) -> Iterator[None]:
    try:
        yield
    except InvalidTable as error:
        if error.table != UNNAMED:
            raise
        raise InvalidTable(table=path, field=error.field, value=error.value, reason=error.reason) from error


@contextmanager
def with_extra(what: str) -> Iterator[None]:
    """The base package reads no lake: says which extra does."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("lakeward"):
            raise
        reason = (
            f"the package {(error.name or '').partition('.')[0]} is not installed: pip install 'lakeward[{READ_EXTRA}]'"
        )
        raise InvalidRequest(what=what, reason=reason) from error
