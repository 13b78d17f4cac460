# SPDX-License-Identifier: Apache-2.0
"""The server's lakes: those that are configured, one of them with the embedded Iceberg catalog unless another is named,
and any other plugin.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.config import Config, options
from lakeward.config.lake import LakeConfig, load_lakes
from lakeward.config.shown import shown_options
from lakeward.config.tables import DEFAULT_LAKE
from lakeward.errors import InvalidConfig, LakeNotFound, PluginNotFound
from lakeward.protocol.tables import LakeAddress
from lakeward.server.lakecopy import LakeFolder, find_lake_folder
from lakeward.server.restored import LakeRecord, as_toml
from lakeward.spi import LakePlugin, LakeStorage, find_lake_plugin, load_lake

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from lakeward.lake.iceberg.plugin import IcebergLakeStorage


class ServerLakes:
    """Opens each lake once. Called like a function it gives a lake's storage by name, as the coordinator wants it; the
    name of a format is that of a table which keeps another one than its lake has now."""

    def __init__(self, config: Config, data: Path) -> None:
        """Raises `InvalidConfig` for lakes that are half-written or one place."""
        self.config, self.data = config, data
        self.lakes: dict[str, LakeConfig] = load_lakes(config)
        self.lake: LakeConfig | None = next(iter(self.lakes.values()), None)
        self._lock = threading.Lock()
        self._opened: dict[str, LakeStorage] = {}
        self._check_catalogs()
        self._check_places()

    def __call__(self, name: str) -> LakeStorage:
        """Raises `PluginNotFound`, `InvalidConfig`."""
        lake = self.lakes.get(name) or self._short(name)
        key = name if lake is None else lake.name
        with self._lock:
            if key not in self._opened:
                format_name = name if lake is None else lake.format
                options = self.config.below(f"datalake.{name}.") if lake is None else self._options(lake)
                self._opened[key] = load_lake(format_name, options)
            return self._opened[key]

    def find(self, name: str) -> LakeConfig:
        """Raises `LakeNotFound`."""
        if name not in self.lakes:
            raise LakeNotFound(lake=name, lakes=", ".join(self.lakes) or "none")
        return self.lakes[name]

    def _short(self, format_name: str) -> LakeConfig | None:
        short = self.lakes.get(DEFAULT_LAKE)
        return short if short is not None and short.format == format_name else None

    @property
    def has_embedded_catalog(self) -> bool:
        """The server keeps the catalog of a lake and serves it under /iceberg."""
        return self._kept() is not None

    def elsewhere(self) -> list[str]:
        """Lakes whose catalog is not the server's own."""
        return [name for name, lake in self.lakes.items() if not self._is_kept(lake)]

    def _kept(self) -> LakeConfig | None:
        return next((lake for lake in self.lakes.values() if self._is_kept(lake)), None)

    def _is_kept(self, lake: LakeConfig) -> bool:
        return self._plugin(lake.format).wants_catalog(lake.settings)

    def embedded_catalog(self) -> Catalog | None:
        storage = self.embedded()
        return None if storage is None else storage.connection.catalog

    def embedded_names(self) -> list[str]:
        """The lake of that catalog, if there is one."""
        lake = self._kept()
        return [] if lake is None else [lake.name]

    def embedded(self) -> IcebergLakeStorage | None:
        """The lake whose catalog the server keeps."""
        lake = self._kept()
        if lake is None:
            return None
        from lakeward.lake.iceberg.plugin import IcebergLakeStorage

        storage = self(lake.name)
        assert isinstance(storage, IcebergLakeStorage), "the REST catalog serves Iceberg's"
        return storage

    def records(self) -> dict[str, LakeRecord]:
        """Records of every lake, for a backup: a server on the restored folder needs them to open it."""
        return {name: self._record(lake) for name, lake in self.lakes.items()}

    def _record(self, lake: LakeConfig) -> LakeRecord:
        is_short = lake.name == DEFAULT_LAKE and self.config.is_set(options.DATALAKE_FORMAT)
        prefix = f"datalake.{lake.format}." if is_short else f"lakes.{lake.name}."
        shown_settings = shown_options(lake.settings, self.config.get(options.SERVER_LAKE_OPTIONS_SHOWN))
        first = {"datalake.format" if is_short else f"{prefix}format": lake.format}
        first |= {options.DATALAKE_DEFAULT_LAKE.key: lake.name} if len(self.lakes) > 1 and lake is self.lake else {}
        return LakeRecord(
            format=lake.format,
            place=self._place(lake),
            settings={**first, **{f"{prefix}{k}": v for k, v in {**shown_settings, **lake.defaults}.items()}},
            defaults={f"{prefix}{k}": v for k, v in self._plugin(lake.format).defaults(self._folder(lake)).items()},
            folder="" if (local := self._local(lake)) is None else str(local.folder),
        )

    def local_folders(self) -> dict[str, LakeFolder]:
        """Lakes that are in folders of this machine, with their catalog there or in the server's."""
        found = {name: self._local(lake) for name, lake in self.lakes.items()}
        return {name: folder for name, folder in found.items() if folder is not None}

    def _local(self, lake: LakeConfig) -> LakeFolder | None:
        warehouse = self._options(lake).get("warehouse", "")
        return find_lake_folder(lake.name, self._plugin(lake.format), lake.settings, warehouse)

    def missing(self, recorded: Mapping[str, LakeRecord]) -> dict[str, str]:
        """Lakes of a backup that are not configured, or would be created in another place -> the lines that
        lakeward.toml needs. A place that the configuration names is accepted: lakes move."""
        return {name: as_toml(lake.all_settings) for name, lake in recorded.items() if self._is_missing(name, lake)}

    def _is_missing(self, name: str, recorded: LakeRecord) -> bool:
        lake = self.lakes.get(name)
        if lake is None or lake.format != recorded.format:
            return True
        by_default = self._plugin(lake.format).place(self._plugin(lake.format).defaults(self._folder(lake)))
        return self._place(lake) == by_default != recorded.place

    def _place(self, lake: LakeConfig) -> str:
        plugin = self._plugin(lake.format)
        return plugin.place({**plugin.defaults(self._folder(lake)), **lake.settings})

    def addresses(self, http_url: str) -> dict[str, LakeAddress]:
        """Name -> what jobs and readers need to reach that lake; they bring their own secrets."""
        return {name: self._address(lake, http_url) for name, lake in self.lakes.items()}

    def _address(self, lake: LakeConfig, http_url: str) -> LakeAddress:
        plugin = self._plugin(lake.format)
        settings = {**plugin.defaults(self._folder(lake)), **lake.settings}
        told = shown_options(settings, self.config.get(options.SERVER_LAKE_OPTIONS_SHOWN))
        return LakeAddress(format=lake.format, options=plugin.peer_options(told, f"{http_url}/iceberg"))

    def _plugin(self, name: str) -> LakePlugin:
        """A plugin that is not installed is reported when it is opened."""
        try:
            return find_lake_plugin(name)
        except PluginNotFound:
            return LakePlugin(name, partial(load_lake, name))

    def _options(self, lake: LakeConfig) -> dict[str, str]:
        return self._plugin(lake.format).server_options(lake.settings, self._folder(lake))

    def _folder(self, lake: LakeConfig) -> Path:
        """By its name alone, so that it stays where it is when another one becomes the default."""
        is_own = lake.name == DEFAULT_LAKE or self._is_kept(lake)
        return self.data if is_own else self.data / "lakes" / lake.name

    def _check_catalogs(self) -> None:
        kept = [lake.name for lake in self.lakes.values() if self._is_kept(lake)]
        if len(kept) > 1:
            reason = f"the server keeps one catalog, that of lake {kept[0]}: name the catalog of this one (uri, type)"
            raise InvalidConfig(where=f"lakes.{kept[1]}", reason=reason)

    def _check_places(self) -> None:
        known: dict[tuple[str, str], str] = {}
        for name, lake in self.lakes.items():
            place = self._place(lake)
            other = known.setdefault((lake.format, place), name)
            if other != name:
                reason = f"it is where lake {other} is ({place or 'by default'}): two sides would write one lake table"
                raise InvalidConfig(where=f"lakes.{name}", reason=reason)
