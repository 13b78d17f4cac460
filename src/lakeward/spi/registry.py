# SPDX-License-Identifier: Apache-2.0
"""Finds plugins through entry points, ours included; a wrong name lists what is installed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints, entry_points

from lakeward.errors import InvalidConfig, PluginNotFound
from lakeward.spi.capabilities import Lack
from lakeward.spi.hot import HotPlugin
from lakeward.spi.lake.storage import LakeStorage
from lakeward.spi.lakeplugin import LakePlugin
from lakeward.spi.source import SourceKind

LAKE_GROUP = "lakeward.lake"
HOT_GROUP = "lakeward.hot"
SOURCE_GROUP = "lakeward.source"


def load_lake(name: str, options: Mapping[str, str]) -> LakeStorage:
    """The lake plugin of that name with its options. Raises `PluginNotFound`, `InvalidConfig`."""
    storage = find_lake_plugin(name)(options)
    assert isinstance(storage, LakeStorage), f"{name} gave {type(storage).__name__}, no LakeStorage"
    if Lack.CONDITIONAL_COMMIT in storage.capabilities.lacks:
        reason = "it cannot commit on an exact head, so that a round that lost its lease could not be refused"
        raise InvalidConfig(where=f"datalake.format = {name}", reason=reason)
    return storage


def find_lake_plugin(name: str) -> LakePlugin:
    """Returns the plugin that is installed under this name, not opened. Raises `PluginNotFound`."""
    loaded = _find("lake", LAKE_GROUP, name).load()
    return loaded if isinstance(loaded, LakePlugin) else LakePlugin(name, loaded)


def load_hot(name: str, options: Mapping[str, str]) -> HotPlugin:
    """The hot store plugin of that name with its options. Raises `PluginNotFound`."""
    plugin = _find("hot store", HOT_GROUP, name).load()(options)
    assert isinstance(plugin, HotPlugin), f"{name} gave {type(plugin).__name__}, no HotPlugin"
    return plugin


def load_source(name: str) -> SourceKind:
    """The kind of source of that name, which is the scheme of its URLs too. Raises `PluginNotFound`."""
    kind = _find("source", SOURCE_GROUP, {"postgresql": "postgres"}.get(name, name)).load()()
    assert isinstance(kind, SourceKind), f"{name} gave {type(kind).__name__}, no SourceKind"
    return kind


def load_sources() -> list[SourceKind]:
    """Every kind of source that is installed, by name."""
    return [load_source(name) for name in installed(SOURCE_GROUP)]


def import_plugin(group: str, name: str) -> None:
    """Imports the plugin's module and makes nothing of it: for processes that want their imports behind them. Raises
    `PluginNotFound`.
    """
    _find("lake" if group == LAKE_GROUP else "hot store", group, name).load()


def find_missing_library(name: str) -> str | None:
    """Returns the first library that a lake plugin lacks in this process; None: it can open a lake. Imports the
    plugin's module. Raises `PluginNotFound`."""
    try:
        return find_lake_plugin(name).find_missing()
    except ImportError as error:
        return error.name.partition(".")[0] if error.name else str(error)


def installed(group: str) -> list[str]:
    return sorted({e.name for e in _entries(group, tuple(sys.path))})


def _find(kind: str, group: str, name: str) -> EntryPoint:
    for entry in _entries(group, tuple(sys.path)):
        if entry.name == name:
            return entry
    raise PluginNotFound(kind=kind, name=name, installed=", ".join(installed(group)) or "none")


@functools.cache
def _entries(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Looking through the metadata of everything that is installed takes longer than the rest of a small round."""
    return entry_points(group=group)
