# SPDX-License-Identifier: Apache-2.0
"""Opens the client for a command, or the server's door alone: address and token from arguments, environment or
lakeward.toml, or the address of the server that `lakeward up` runs in this folder.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakeward.config import options, resolve

DATA, READY = Path("lakeward-data"), "server.ready"
"""The folder of `lakeward up` where none is given, and the file in it that says where its server listens."""

if TYPE_CHECKING:
    from lakeward.client import Client
    from lakeward.config import Config
    from lakeward.hot.embedded.door.http import ServerConnection


def open_client(server: str | None) -> Client:
    """Nothing is sent yet."""
    from lakeward.client import connect

    return connect(config=_config(server))


def open_server(server: str | None) -> ServerConnection:
    """For commands that only call the server: loads neither Arrow nor Flight. Nothing is sent yet."""
    from lakeward.client.options import ClientOptions

    config = _config(server)
    return ClientOptions.of(config).connect(config.get(options.CLIENT_SERVER))


def _config(server: str | None) -> Config:
    config = resolve(arguments={options.CLIENT_SERVER.key: server} if server else {})
    if not config.is_set(options.CLIENT_SERVER) and (near := server_of(DATA)):
        return resolve(arguments={options.CLIENT_SERVER.key: near})
    return config


def server_of(data: Path) -> str | None:
    """The address of the server that `up` keeps running on this folder. On this machine only: a token is sent there,
    and whoever made the folder wrote the file. None where nobody listens, as after a kill."""
    try:
        address = urlsplit((data / READY).read_text().strip())
        if address.hostname not in ("127.0.0.1", "localhost", "::1") or address.port is None:
            return None
        socket.create_connection((address.hostname, address.port), timeout=1.0).close()
    except (OSError, ValueError):
        return None
    return f"{address.scheme}://{address.netloc}"
