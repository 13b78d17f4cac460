# SPDX-License-Identifier: Apache-2.0
"""The name of a lake in errors. A format knows only its own name, and several lakes may use one format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.errors import LakeUnavailable
from lakeward.model import DEFAULT_SIDE


@contextmanager
def lake_named(name: str) -> Iterator[None]:
    """Inside, a lake that does not answer is called by the name that it is configured under. That of `datalake.format`
    has none, and stays its format."""
    try:
        yield
    except LakeUnavailable as error:
        name_lake(error, name)
        raise


def name_lake(error: Exception, name: str) -> None:
    if isinstance(error, LakeUnavailable) and name != DEFAULT_SIDE.lake:
        error.lake = name
