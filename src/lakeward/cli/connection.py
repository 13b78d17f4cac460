# SPDX-License-Identifier: Apache-2.0
"""Opens the client for a command: address and token from arguments, environment or lakeward.toml."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.config import options, resolve

if TYPE_CHECKING:
    from lakeward.client import Client


def open_client(server: str | None) -> Client:
    """Nothing is sent yet."""
    from lakeward.client import connect

    return connect(config=resolve(arguments={options.CLIENT_SERVER.key: server} if server else {}))
