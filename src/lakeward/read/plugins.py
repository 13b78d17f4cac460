# SPDX-License-Identifier: Apache-2.0
"""Plugins that reads of one process share: connections are dear, and reads and tasks follow one another."""

from __future__ import annotations

from functools import lru_cache

from lakeward.spi.hot import HotPlugin
from lakeward.spi.lake import LakeStorage
from lakeward.spi.registry import load_hot, load_lake

Options = tuple[tuple[str, str], ...]


@lru_cache(maxsize=8)
def cached_hot(name: str, options: Options) -> HotPlugin:
    """One per set of options."""
    return load_hot(name, dict(options))


@lru_cache(maxsize=8)
def cached_lake(name: str, options: Options) -> LakeStorage:
    """The same for lakes."""
    return load_lake(name, dict(options))
