# SPDX-License-Identifier: Apache-2.0
"""Errors say which extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.errors import InvalidRequest

READ_EXTRA = "iceberg"


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
