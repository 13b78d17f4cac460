# SPDX-License-Identifier: Apache-2.0
"""Opens the client for a command, or the server's door alone: address and token from arguments, environment or
lakeward.toml, or the address of the server that `lakeward up` runs in this folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.client.near import resolve_server
from lakeward.config import options

if TYPE_CHECKING:
    from lakeward.client import Client
    from lakeward.hot.embedded.door.http import ServerConnection


def open_client(server: str | None) -> Client:
    """Nothing is sent yet."""
    from lakeward.client import connect

    return connect(config=resolve_server(server))


def open_server(server: str | None) -> ServerConnection:
    """For commands that only call the server: loads neither Arrow nor Flight. Nothing is sent yet."""
    from lakeward.client.options import ClientOptions

    config = resolve_server(server)
    return ClientOptions.of(config).connect(config.get(options.CLIENT_SERVER))
