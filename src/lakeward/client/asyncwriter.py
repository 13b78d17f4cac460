# SPDX-License-Identifier: Apache-2.0
"""The buffered writer for asyncio: awaiting a write waits for its acknowledgement without holding up the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from lakeward.client.writer import BufferedWriter, Columns
from lakeward.protocol.readplan import WriteToken


class AsyncWriter:
    """`async with table.async_writer() as writer: await writer.append(rows)`. Many writes may be awaited at once."""

    def __init__(self, writer: BufferedWriter) -> None:
        self.writer = writer

    async def append(self, rows: Any) -> WriteToken:
        return await self._acknowledged(self.writer.append, rows)

    async def upsert(self, rows: Any, columns: Columns = None, *, replace: bool = False) -> WriteToken:
        return await self._acknowledged(partial(self.writer.upsert, replace=replace), rows, columns)

    async def delete(self, keys: Any) -> WriteToken:
        return await self._acknowledged(self.writer.delete, keys)

    async def flush(self) -> WriteToken | None:
        return await asyncio.to_thread(self.writer.flush)

    async def close(self) -> None:
        await asyncio.to_thread(self.writer.close)

    async def __aenter__(self) -> AsyncWriter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _acknowledged(self, write: Callable[..., Future[WriteToken]], *arguments: Any) -> WriteToken:
        # Taking rows may wait for room, so it happens off the loop too.
        return await asyncio.wrap_future(await asyncio.to_thread(write, *arguments))
