# SPDX-License-Identifier: Apache-2.0
"""Hot stores and lakes by plugin name and options, opened once per process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from lakeward.spi.hot import HotPlugin
from lakeward.spi.lake import LakeStorage
from lakeward.spi.registry import load_hot, load_lake
from lakeward.tiering.round.order import Plugin

_Key = tuple[str, tuple[tuple[str, str], ...]]


class PluginCache:
    """Safe to use from several threads. Loaders can be replaced, so that tests run a round without processes."""

    def __init__(
        self,
        open_hot: Callable[[str, Mapping[str, str]], HotPlugin] = load_hot,
        open_lake: Callable[[str, Mapping[str, str]], LakeStorage] = load_lake,
    ) -> None:
        self._open_hot, self._open_lake = open_hot, open_lake
        self._hot: dict[_Key, HotPlugin] = {}
        self._lake: dict[_Key, LakeStorage] = {}
        self._lock = threading.Lock()

    def hot(self, plugin: Plugin) -> HotPlugin:
        with self._lock:
            key = _key(plugin)
            if key not in self._hot:
                self._hot[key] = self._open_hot(plugin.name, plugin.options)
            return self._hot[key]

    def lake(self, plugin: Plugin) -> LakeStorage:
        with self._lock:
            key = _key(plugin)
            if key not in self._lake:
                self._lake[key] = self._open_lake(plugin.name, plugin.options)
            return self._lake[key]


def _key(plugin: Plugin) -> _Key:
    return plugin.name, tuple(sorted(plugin.options.items()))
