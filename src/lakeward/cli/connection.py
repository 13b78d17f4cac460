# SPDX-License-Identifier: Apache-2.0
"""Opens the client for a command: address and token from arguments, environment or lakeward.toml."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.config import options, resolve

if TYPE_CHECKING:
    from lakeward.client import Client


def open_client(server: str | None) -> Client:
    """Nothing is sent yet."""
    from lakeward.client import connect

    config = resolve(arguments={options.CLIENT_SERVER.key: server} if server else {})
    ca = config.get(options.CLIENT_TLS_CA)
    return connect(config.get(options.CLIENT_SERVER), token=_token(config), ca=None if ca is None else str(ca))


def _token(config: object) -> str | None:
    from lakeward.config import Config

    assert isinstance(config, Config)
    given = config.get(options.CLIENT_TOKEN)
    file = config.get(options.CLIENT_TOKEN_FILE)
    if given is None and file is not None:
        return Path(file).read_text().strip()
    return given
