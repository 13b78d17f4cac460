# SPDX-License-Identifier: Apache-2.0
"""The HTTP listener: answers leave at once."""

from __future__ import annotations

import asyncio
import socket

import pytest

from lakeward.errors import InvalidConfig
from lakeward.server.admission.httpdoor import bind_listener


def test_accepted_connections_send_without_delay() -> None:
    """Seen on the transport that asyncio, and so uvicorn, makes of a connection."""

    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        server = await asyncio.start_server(serve, sock=bind_listener("127.0.0.1", 0))
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            answer = await found
            writer.close()
            await writer.wait_closed()
        return answer

    assert asyncio.run(accepted()) != 0


def test_a_port_in_use_is_said_in_words() -> None:
    with bind_listener("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(InvalidConfig, match="cannot listen on"):
            bind_listener("127.0.0.1", first.getsockname()[1])
