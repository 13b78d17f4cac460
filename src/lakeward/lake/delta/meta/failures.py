# SPDX-License-Identifier: Apache-2.0
"""What trouble outside is to a caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.errors import LakeUnavailable


@contextmanager
def lake_errors(table: str, what: str) -> Iterator[None]:
    """What folder or object store refuse may heal by itself."""
    try:
        yield
    except OSError as error:
        raise LakeUnavailable(lake="delta", what=f"{what} {table}", reason=str(error)) from error
