# SPDX-License-Identifier: Apache-2.0
"""The server's lakes: the configured one, with its embedded Iceberg catalog unless another is named, and any other
plugin.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.config import Config, LakeConfig, load_lake_config, options
from lakeward.config.shown import shown_options
from lakeward.errors import PluginNotFound
from lakeward.spi.lake import LakeStorage
from lakeward.spi.lakeplugin import LakePlugin
from lakeward.spi.registry import find_lake_plugin, load_lake

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from lakeward.lake.iceberg.plugin import IcebergLakeStorage

log = logging.getLogger(__name__)


class ServerLakes:
    """Opens each lake once. Called like a function it gives a format's storage, as the coordinator wants it."""

    def __init__(self, config: Config, data: Path) -> None:
        self.config, self.data = config, data
        self.lake: LakeConfig | None = load_lake_config(config)
        self._lock = threading.Lock()
        self._opened: dict[str, LakeStorage] = {}

    def __call__(self, name: str) -> LakeStorage:
        """Raises `PluginNotFound`, `InvalidConfig`."""
        with self._lock:
            if name not in self._opened:
                self._opened[name] = load_lake(name, self._options(name))
            return self._opened[name]

    @property
    def has_embedded_catalog(self) -> bool:
        """The server keeps the catalog of its lake and serves it under /iceberg."""
        return self.lake is not None and self._plugin(self.lake.format).wants_catalog(self.lake.settings)

    def embedded_catalog(self) -> Catalog | None:
        storage = self._embedded()
        return None if storage is None else storage.connection.catalog

    def _embedded(self) -> IcebergLakeStorage | None:
        if self.lake is None or not self.has_embedded_catalog:
            return None
        from lakeward.lake.iceberg.plugin import IcebergLakeStorage

        storage = self(self.lake.format)
        assert isinstance(storage, IcebergLakeStorage), "the REST catalog serves Iceberg's"
        return storage

    def move_forward(self) -> None:
        """The folder is a restored copy: its catalog may name metadata files that the tables have outgrown since. Safe
        to repeat. Raises `LakeHistoriesDiffer`, `LakeUnavailable`, before any pointer moves."""
        storage = self._embedded()
        if storage is None:
            return
        from lakeward.lake.iceberg.meta.forward import move_forward

        for moved in move_forward(storage.connection):
            log.log(
                logging.WARNING if moved.after is None else logging.INFO, "lake table %s: %s", moved.table, moved.words
            )

    def peer_options(self, http_url: str) -> dict[str, dict[str, str]]:
        """Format -> what jobs and readers need to reach that lake; they bring their own secrets."""
        if self.lake is None:
            return {}
        plugin = self._plugin(self.lake.format)
        settings = {**plugin.defaults(self.data), **self.lake.settings}
        told = shown_options(settings, self.config.get(options.SERVER_LAKE_OPTIONS_SHOWN))
        return {self.lake.format: plugin.peer_options(told, f"{http_url}/iceberg")}

    def _plugin(self, name: str) -> LakePlugin:
        """One that is not installed is said to be missing when it is opened."""
        try:
            return find_lake_plugin(name)
        except PluginNotFound:
            return LakePlugin(name, partial(load_lake, name))

    def _options(self, name: str) -> dict[str, str]:
        options = self.config.below(f"datalake.{name}.")
        is_main = self.lake is not None and self.lake.format == name
        return self._plugin(name).server_options(options, self.data) if is_main else options
