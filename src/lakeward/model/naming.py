# SPDX-License-Identifier: Apache-2.0
"""Errors get the name of the table they are about: a schema that is wrong, or a file, does not know whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.errors import InvalidRequest, LakewardError

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
