# SPDX-License-Identifier: Apache-2.0
"""A whole Lakeward in this process with its Iceberg catalog on a port: what engines read as warehouse `live`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import DEFAULT_SIDE, Clock, SystemClock, TablePath
from lakeward.protocol.auth import TokenSet
from lakeward.server.iceberg.catalog import iceberg_router
from lakeward.server.iceberg.readonly import ReadOnlyTables
from lakeward.server.live.table import LiveLimits
from lakeward.server.live.warehouse import LiveOptions, LiveWarehouse
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until
from tests.kit.iceberg.folder import folder_lake
from tests.kit.inprocess import InProcessLakeward

LIMITS = LiveLimits(rows=1_000_000, bytes=1 << 30)


class LiveWorld:
    """`restart` is what a killed and started server is: everything in memory is gone, the catalog's port stays."""

    def __init__(
        self, folder: Path, lake: IcebergLakeStorage, options: LiveOptions, clock: Clock | None = None
    ) -> None:
        self._folder, self._lake, self._options = folder, lake, options
        self.lakeward = InProcessLakeward(folder / "hot", lake, clock or SystemClock())
        self._door = _Door()
        self._open()

    def _open(self) -> None:
        parts = self.lakeward
        self.live = LiveWarehouse(
            parts.coordinator, parts.store, [DEFAULT_SIDE.lake], self._folder, parts.clock, self._options
        )
        catalog = self._lake.connection.catalog
        read_only = ReadOnlyTables(catalog, self.live, parts.coordinator.cuts.load_cut)
        app = FastAPI()
        app.include_router(iceberg_router(catalog, TokenSet.parse([]), read_only=read_only))
        self._door.app = app

    def restart(self) -> None:
        self.live.close()
        self.lakeward.restart()
        self._open()

    def close(self) -> None:
        self._door.close()
        self.live.close()
        self.lakeward.close()

    @property
    def url(self) -> str:
        return self._door.url

    def load(self, table: str) -> object:
        side = self.live.find(TablePath.parse(table))
        assert side is not None
        return self.live.load(side)


class _Door:
    """One port for all lives of the server behind it."""

    def __init__(self) -> None:
        self.app: FastAPI | None = None
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/iceberg"
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._call, host="127.0.0.1", port=port, log_level="warning", interface="asgi3", lifespan="off"
            )
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started, what="the catalog's port")

    async def _call(self, scope: dict[str, object], receive: object, send: object) -> None:
        assert self.app is not None
        await self.app(scope, receive, send)  # type: ignore[arg-type]

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)


@contextmanager
def live_world(
    folder: Path,
    *,
    hold_s: float = 0.0,
    keep_s: float = 600.0,
    limits: LiveLimits = LIMITS,
    max_bytes: int = 1 << 40,
    clock: Clock | None = None,
) -> Iterator[LiveWorld]:
    (folder / "lake").mkdir()
    with folder_lake(folder / "lake") as lake:
        if clock is not None:
            lake.connection.clock = clock
        options = LiveOptions(hold_s=hold_s, keep_s=keep_s, limits=limits, max_bytes=max_bytes)
        world = LiveWorld(folder, lake, options, clock)
        try:
            yield world
        finally:
            world.close()
