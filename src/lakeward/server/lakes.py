# SPDX-License-Identifier: Apache-2.0
"""The server's lakes: the configured one, with its embedded Iceberg catalog unless another is named, and any other
plugin.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.config import Config, LakeConfig, load_lake_config
from lakeward.spi.lake import LakeStorage
from lakeward.spi.registry import load_lake

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from lakeward.lake.iceberg.plugin import IcebergLakeStorage

log = logging.getLogger(__name__)

ICEBERG = "iceberg"
_CATALOG_KEYS = ("type", "uri", "catalog-impl", "py-catalog-impl")
_SECRET_WORDS = ("secret", "password", "token", "credential", "access-key", "account-key", "sas")


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
        """Iceberg without a catalog of its own in the configuration: the server keeps it and serves it under
        /iceberg.
        """
        return (
            self.lake is not None
            and self.lake.format == ICEBERG
            and not any(key in self.lake.settings for key in _CATALOG_KEYS)
        )

    def embedded_catalog(self) -> Catalog | None:
        storage = self._embedded()
        return None if storage is None else storage.connection.catalog

    def _embedded(self) -> IcebergLakeStorage | None:
        if not self.has_embedded_catalog:
            return None
        from lakeward.lake.iceberg.plugin import IcebergLakeStorage

        storage = self(ICEBERG)
        assert isinstance(storage, IcebergLakeStorage)
        return storage

    def move_forward(self) -> None:
        """The folder is a restored copy: its catalog may name metadata files that the tables have outgrown since. Safe
        to repeat. Raises `LakeHistoriesDiffer`, `LakeUnavailable`, before any pointer moves."""
        storage = self._embedded()
        if storage is None:
            return
        from lakeward.lake.iceberg.meta.forward import move_forward

        for found in move_forward(storage.connection):
            log.log(
                logging.WARNING if found.after is None else logging.INFO, "lake table %s: %s", found.table, found.words
            )

    def peer_options(self, http_url: str) -> dict[str, dict[str, str]]:
        """Format -> what jobs and readers need to reach that lake; they bring their own secrets."""
        if self.lake is None:
            return {}
        given = {k: v for k, v in self.lake.settings.items() if not any(word in k.lower() for word in _SECRET_WORDS)}
        if self.has_embedded_catalog:
            given = {**given, "type": "rest", "uri": f"{http_url}/iceberg"}
        return {self.lake.format: given}

    def _options(self, name: str) -> dict[str, str]:
        options = self.config.below(f"datalake.{name}.")
        if name == ICEBERG and self.has_embedded_catalog:
            folder = self.data / "iceberg"
            folder.mkdir(parents=True, exist_ok=True)
            warehouse = (self.data / "warehouse").resolve()
            options = {
                "warehouse": warehouse.as_uri(),
                **options,
                "type": "sql",
                "uri": f"sqlite:///{(folder / 'catalog.db').resolve()}",
            }
        return options
