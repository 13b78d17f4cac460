# SPDX-License-Identifier: Apache-2.0
"""The embedded hot store as a plugin: its store and its coordinator's client, from one option, `server`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakeward.errors import InvalidConfig, LakeUnavailable
from lakeward.hot.embedded.remote.coordinatorclient import HttpCoordinatorClient
from lakeward.hot.embedded.remote.http import ServerConnection
from lakeward.hot.embedded.remote.storeclient import EmbeddedStoreClient
from lakeward.model import DEFAULT_SIDE, Intent, SideName, TableInfo, TablePath, first_side
from lakeward.spi import FrozenTable, HotPlugin

SERVER = "server"
CA = "tls.ca"
FORMAT_PROPERTY = "table.datalake.format"


class EmbeddedPlugin(HotPlugin):
    """`server` is the HTTP URL, `tls.ca` a file of certificates to trust. The token is that of each process:
    LAKEWARD_TOKEN, or the file that LAKEWARD_CLIENT__TOKEN_FILE names."""

    name = "embedded"

    def __init__(
        self, options: Mapping[str, str], server: ServerConnection | None = None, *, retry_s: float = 60.0
    ) -> None:
        if SERVER not in options:
            raise InvalidConfig(
                where="hot store embedded", reason="the option `server` (the server's HTTP URL) is missing"
            )
        self.options = dict(options)
        self.server = server or ServerConnection(options[SERVER], ca=options.get(CA))
        self._store = EmbeddedStoreClient(self.server, retry_s=retry_s)
        self._coordinator = HttpCoordinatorClient(self.server)

    def store(self) -> EmbeddedStoreClient:
        return self._store

    def reach(self) -> None:
        self.server.info()

    def coordinator(self) -> HttpCoordinatorClient:
        return self._coordinator

    def begin_round(self, intent: Intent, path: TablePath) -> FrozenTable:
        return replace(self._coordinator.begin_round(intent, path) or self._store.freeze_table(path), has_intent=True)

    def lake_options(self, table: TableInfo, side: SideName | None = None) -> tuple[str, Mapping[str, str]]:
        """Asks the server where its lake is, and how it is reached."""
        info = self.server.info()
        name = (side or first_side(table.descriptor.properties) or DEFAULT_SIDE).lake
        if name != DEFAULT_SIDE.lake:
            if name not in info.lakes:
                info = self.server.info(fresh=True)  # a token's lakes come and go with its tables
            if name not in info.lakes:
                raise LakeUnavailable(lake=name, what=str(table.path), reason="the server has no lake of that name")
            return info.lakes[name].format, dict(info.lakes[name].options)
        lake = table.descriptor.properties.get(FORMAT_PROPERTY) or info.lake_format
        if lake is None:
            raise LakeUnavailable(lake="none", what=str(table.path), reason="the server has no datalake.format")
        own = info.lakes.get(DEFAULT_SIDE.lake)
        return lake, dict(info.lake_options if own is None else own.options)


def load(options: Mapping[str, str]) -> EmbeddedPlugin:
    return EmbeddedPlugin(options)
