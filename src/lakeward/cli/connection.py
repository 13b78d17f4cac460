# SPDX-License-Identifier: Apache-2.0
"""Opens the client for a command, or the server's door alone: address and token from arguments, environment or
lakeward.toml, or the address of the server that `lakeward up` runs in this folder.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.cli.output import note
from lakeward.client.options import is_starting, resolve_server, server_of
from lakeward.config import options, resolve

if TYPE_CHECKING:
    from lakeward.client import Client
    from lakeward.hot.embedded.remote.http import ServerConnection

START_LIMIT_S, START_LOOK_S = 60.0, 0.1
"""A start reads what a crash left behind; `up` itself gives up after as long."""


def open_client(server: str | None) -> Client:
    """Nothing is sent yet."""
    from lakeward.client import connect

    wait_for_start(server)
    return connect(config=resolve_server(server))


def open_server(server: str | None, *, waits: bool = True) -> ServerConnection:
    """For commands that only call the server: loads neither Arrow nor Flight. Nothing is sent yet."""
    from lakeward.client.options import ClientOptions

    if waits:
        wait_for_start(server)
    config = resolve_server(server)
    return ClientOptions.of(config).connect(config.get(options.CLIENT_SERVER))


def wait_for_start(server: str | None) -> None:
    """Where no server is named and the `lakeward up` of this folder is still starting: until it is up, or gives up."""
    config = resolve()
    data = Path(config.get(options.SERVER_DATA_DIR))
    if server or config.is_set(options.CLIENT_SERVER) or not is_starting(data):
        return
    note(f"`lakeward up` on {data} is starting; waiting for it")
    give_up_at = time.monotonic() + START_LIMIT_S
    while is_starting(data) and server_of(data) is None and time.monotonic() < give_up_at:
        time.sleep(START_LOOK_S)
