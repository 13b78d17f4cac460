# SPDX-License-Identifier: Apache-2.0
"""Errors of the warehouse and of Lance's library as lake errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from lakeward.errors import LakeUnreadable
from lakeward.lake.core import failures


def is_missing(error: Exception) -> bool:
    """Does the library say so of a file or a version?"""
    return "not found" in str(error).lower()


lake_errors = failures.lake_errors("lance", RuntimeError, is_transient=is_missing)


@contextmanager
def row_errors(table: str) -> Iterator[None]:
    """Inside, rows are read. Some nested values the library has written and cannot read: `LakeUnreadable`."""
    with lake_errors(table, "read rows of"):
        try:
            yield
        except pa.ArrowInvalid as error:
            if is_missing(error):
                raise
            raise LakeUnreadable(lake="lance", table=table, reason=str(error)[:300]) from error
