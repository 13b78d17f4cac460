# SPDX-License-Identifier: Apache-2.0
"""What trouble outside is to a caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.errors import LakeUnavailable


def is_missing(error: ValueError) -> bool:
    """Does the library say so of a file or a version?"""
    return "not found" in str(error).lower()


@contextmanager
def lake_errors(table: str, what: str) -> Iterator[None]:
    """What folder or object store refuse may heal by itself."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise LakeUnavailable(lake="lance", what=f"{what} {table}", reason=str(error)) from error
    except ValueError as error:
        if not is_missing(error):
            raise
        raise LakeUnavailable(lake="lance", what=f"{what} {table}", reason=str(error)) from error
