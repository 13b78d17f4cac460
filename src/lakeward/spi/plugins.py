# SPDX-License-Identifier: Apache-2.0
"""Hot stores and lakes by plugin name and options, opened once per process: connections are dear, and reads, rounds and
tasks follow one another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from lakeward.spi.hot import HotPlugin
from lakeward.spi.lake.storage import LakeStorage
from lakeward.spi.registry import load_hot, load_lake

KEPT = 64
"""Cached instances per kind; a process that reads from more servers or lakes opens the oldest again."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A plugin by name with the options that rebuild it; secrets are not in them, each process has its own."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)


class PluginCache:
    """Safe to use from several threads. Loaders can be replaced, so that tests run a round without processes."""

    def __init__(
        self,
        open_hot: Callable[[str, Mapping[str, str]], HotPlugin] = load_hot,
        open_lake: Callable[[str, Mapping[str, str]], LakeStorage] = load_lake,
    ) -> None:
        self._hot = lru_cache(KEPT)(lambda name, options: open_hot(name, dict(options)))
        self._lake = lru_cache(KEPT)(lambda name, options: open_lake(name, dict(options)))
        self._lock = threading.Lock()

    def hot(self, plugin: Plugin) -> HotPlugin:
        with self._lock:
            return self._hot(plugin.name, _sorted(plugin.options))

    def lake(self, plugin: Plugin) -> LakeStorage:
        with self._lock:
            return self._lake(plugin.name, _sorted(plugin.options))


def _sorted(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(options.items()))


PROCESS_PLUGINS = PluginCache()
"""Cache for reads and for Spark's Python workers, which outlive a job."""
