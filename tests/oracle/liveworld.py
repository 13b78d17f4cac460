# SPDX-License-Identifier: Apache-2.0
"""A whole Lakeward in this process with its Iceberg catalog on a port: what engines read as warehouse `live`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from fastapi import FastAPI

from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.model import DEFAULT_SIDE, Clock, SystemClock, TablePath
from lakeward.model.side import COMPACT
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.tables import AlterTable
from lakeward.server.iceberg.catalog import iceberg_router
from lakeward.server.iceberg.readonly import ReadOnlyTables
from lakeward.server.live.serversource import ServerLiveSource
from lakeward.server.live.table import LiveLimits
from lakeward.server.live.warehouse import LiveOptions, LiveWarehouse
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until
from tests.kit.iceberg.folder import folder_lake
from tests.kit.inprocess import InProcessLakeward

LIMITS = LiveLimits(rows=1_000_000, bytes=1 << 30)


class LiveStage(Protocol):
    """Where a play takes place. Every call returns once it is done. `url`: of the Iceberg catalog."""

    @property
    def url(self) -> str: ...

    def create(self, path: str, columns: str, **options: Any) -> object: ...

    def append(self, path: str, rows: list[dict[str, Any]]) -> object: ...

    def upsert(self, path: str, rows: list[dict[str, Any]]) -> object: ...

    def delete(self, path: str, keys: list[dict[str, Any]]) -> object: ...

    def alter(self, path: str, change: AlterTable) -> object: ...

    def tier(self, path: str) -> object: ...

    def compact(self, path: str) -> object: ...

    def expire(self) -> object: ...

    def restart(self) -> object: ...


class LiveWorld:
    """`restart` is what a killed and started server is: everything in memory is gone, the catalog's port stays."""

    def __init__(
        self,
        folder: Path,
        lake: IcebergLakeStorage,
        options: LiveOptions,
        clock: Clock | None = None,
        tokens: Sequence[str] = (),
    ) -> None:
        self._folder, self.lake, self._options, self._tokens = folder, lake, options, TokenSet.parse(tokens)
        self.lakeward = InProcessLakeward(folder / "hot", lake, clock or SystemClock())
        self._door = _Door()
        self._open()

    def _open(self) -> None:
        parts = self.lakeward
        source = ServerLiveSource(
            parts.coordinator, parts.store, [DEFAULT_SIDE.lake], parts.clock, self._options.keep_s
        )
        self.live = LiveWarehouse(source, self._folder, parts.clock, self._options)
        catalog = self.lake.connection.catalog
        read_only = ReadOnlyTables(catalog, self.live, parts.coordinator.cuts.load_cut)
        app = FastAPI()
        app.include_router(iceberg_router(catalog, self._tokens, read_only=read_only))
        self._door.app = app

    def restart(self) -> None:
        self.live.close()
        self.lakeward.restart()
        self.lakeward.coordinator.lakes.read_unseen()  # a server does so in the background; no round starts before
        self._open()

    def close(self) -> None:
        self._door.close()
        self.live.close()
        self.lakeward.close()

    @property
    def url(self) -> str:
        return self._door.url

    def create(self, path: str, columns: str, **options: Any) -> object:
        return self.lakeward.create(path, columns, **options)

    def append(self, path: str, rows: list[dict[str, Any]]) -> object:
        return self.lakeward.append(path, rows)

    def upsert(self, path: str, rows: list[dict[str, Any]]) -> object:
        return self.lakeward.upsert(path, rows)

    def delete(self, path: str, keys: list[dict[str, Any]]) -> object:
        return self.lakeward.delete(path, keys)

    def alter(self, path: str, change: AlterTable) -> object:
        return self.lakeward.federation.alter(TablePath.parse(path), change)

    def tier(self, path: str) -> object:
        return self.lakeward.tier(path)

    def compact(self, path: str) -> object:
        self.lakeward.tier(path)
        self.lakeward.coordinator.operations.maintain_now(TablePath.parse(path))
        handed = self.lakeward.take(path, COMPACT)
        return handed and self.lakeward.run(handed)

    def expire(self) -> None:
        self.lakeward.coordinator.upkeep.run()
        self.live.sweep()

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


def _open(options: Mapping[str, str], stack: ExitStack) -> IcebergLakeStorage:
    lake = load(options)
    assert isinstance(lake, IcebergLakeStorage)
    stack.callback(lake.connection.close)
    return lake


@contextmanager
def live_world(
    folder: Path,
    *,
    hold_s: float = 0.0,
    keep_s: float = 600.0,
    limits: LiveLimits = LIMITS,
    max_bytes: int = 1 << 40,
    quota_bytes: int | None = None,
    clock: Clock | None = None,
    options: Mapping[str, str] | None = None,
    tokens: Sequence[str] = (),
) -> Iterator[LiveWorld]:
    """`options`: of a lake elsewhere than in the folder. `tokens`: of the catalog's callers."""
    (folder / "lake").mkdir()
    with ExitStack() as stack:
        lake = stack.enter_context(folder_lake(folder / "lake")) if options is None else _open(options, stack)
        if clock is not None:
            lake.connection.clock = clock
        live_options = LiveOptions(
            hold_s=hold_s, keep_s=keep_s, limits=limits, max_bytes=max_bytes, quota_bytes=quota_bytes
        )
        world = LiveWorld(folder, lake, live_options, clock, tokens)
        try:
            yield world
        finally:
            world.close()
