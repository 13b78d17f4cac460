# SPDX-License-Identifier: Apache-2.0
"""An Apache Fluss cluster as a plugin: its store and its coordinator's client, from the
address of any of its servers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from lakeward.errors import InvalidConfig
from lakeward.hot.fluss.coordinatorclient import FlussCoordinatorClient
from lakeward.hot.fluss.handout.heldnote import HeldNote
from lakeward.hot.fluss.lakeoptions import lake_of
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.wire.connection import Credentials
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward.model import SideName, SystemClock, TableInfo
from lakeward.spi import HotPlugin, LakeReader, LakeStorage, load_lake

BOOTSTRAP = "bootstrap"
USER = "user"
LAKE_PREFIX = "lake."
PASSWORD_VARIABLE = "LAKEWARD_FLUSS_PASSWORD"  # noqa: S105 - the variable's name


class FlussPlugin(HotPlugin):
    """Options: `bootstrap` (host:port, several with commas), `user` for SASL PLAIN with the password from
    LAKEWARD_FLUSS_PASSWORD of each process, and `lake.KEY` for options of the lake that differ from what the cluster
    says. Where one text is all that can be given, the user may stand before the addresses: `user@host:port`."""

    name = "fluss"
    is_upkept = False

    def __init__(self, options: Mapping[str, str]) -> None:
        if not options.get(BOOTSTRAP):
            raise InvalidConfig(
                where="hot store fluss", reason="the option `bootstrap` (host:port of a Fluss server) is missing"
            )
        self.options = dict(options)
        user, _, addresses = options[BOOTSTRAP].rpartition("@")
        self.servers = FlussServers(addresses, credentials=_credentials(options.get(USER) or user or None))
        self._store = FlussStore(self.servers)
        self._lakes: dict[tuple[tuple[str, str], ...], LakeStorage] = {}
        note = HeldNote(addresses, SystemClock())
        self._coordinator = FlussCoordinatorClient(self.servers, self._store, self._lake, note=note)

    def store(self) -> FlussStore:
        return self._store

    def coordinator(self) -> FlussCoordinatorClient:
        return self._coordinator

    def lake_options(self, table: TableInfo, side: SideName | None = None) -> tuple[str, Mapping[str, str]]:
        """From the table's properties. Raises `UnsafeLake` for a catalog that two writers cannot share safely."""
        overrides = {k.removeprefix(LAKE_PREFIX): v for k, v in self.options.items() if k.startswith(LAKE_PREFIX)}
        return lake_of(table, overrides)

    def open_reader(self, table: TableInfo) -> LakeReader:
        """Opens a reader of the table's lake. Raises as `lake_options`."""
        return self.load_lake(table).open_reader(table)

    def load_lake(self, table: TableInfo) -> LakeStorage:
        """The table's lake. Raises as `lake_options`."""
        return self._lake(table)[2]

    def _lake(self, table: TableInfo) -> tuple[str, Mapping[str, str], LakeStorage]:
        name, options = self.lake_options(table)
        key = tuple(sorted(options.items()))
        if key not in self._lakes:
            self._lakes[key] = load_lake(name, options)
        return name, options, self._lakes[key]


def _credentials(user: str | None) -> Credentials | None:
    if user is None:
        return None
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        raise InvalidConfig(where=f"Fluss user {user}", reason=f"its password is missing: set {PASSWORD_VARIABLE}")
    return Credentials(user=user, password=password)


def load(options: Mapping[str, str]) -> FlussPlugin:
    return FlussPlugin(options)
