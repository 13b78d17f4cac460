# SPDX-License-Identifier: Apache-2.0
"""The server that `lakeward up` runs in this folder: the default address of commands and `connect()`."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from lakeward.config import Config, options, resolve

READY = "server.ready"
"""The file in the folder of `lakeward up` that says where its server listens."""


STARTING = "server.starting"
"""The file that stands there while `lakeward up` starts its server, with the process that does."""


def is_starting(data: Path) -> bool:
    """Nothing is sent to the process: a signal of number 0 only asks whether there is one."""
    try:
        os.kill(int((data / STARTING).read_text()), 0)
    except (OSError, ValueError, OverflowError):
        return False
    return True


def resolve_server(server: str | None = None) -> Config:
    """Configuration whose server is the one given, else that of environment or lakeward.toml, else that of this
    folder."""
    config = resolve(arguments={options.CLIENT_SERVER.key: server} if server else {})
    if not config.is_set(options.CLIENT_SERVER) and (near := server_of(Path(config.get(options.SERVER_DATA_DIR)))):
        return resolve(arguments={options.CLIENT_SERVER.key: near})
    return config


def server_of(data: Path) -> str | None:
    """The address of the server that `up` runs on this folder. Only addresses of this machine count, since a token is
    sent there and the file is not trusted. None if no server listens, as after a kill."""
    try:
        address = urlsplit((data / READY).read_text().strip())
        if address.hostname not in ("127.0.0.1", "localhost", "::1") or address.port is None:
            return None
        socket.create_connection((address.hostname, address.port), timeout=1.0).close()
    except (OSError, ValueError):
        return None
    return f"{address.scheme}://{address.netloc}"
