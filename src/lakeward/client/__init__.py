# SPDX-License-Identifier: Apache-2.0
"""The Python client: `connect()` gives a `Client`; tables are made over HTTP, rows travel over Arrow Flight.

Arrow is loaded with the first `Client`: commands that only call the server do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.client.options import ClientOptions, resolve_server
from lakeward.config import Config, options

if TYPE_CHECKING:
    from lakeward.client.client import Client as Client
    from lakeward.client.table import Table as Table

__all__ = ["Client", "ClientOptions", "Table", "connect"]


def connect(
    url: str | None = None, *, token: str | None = None, ca: str | None = None, config: Config | None = None
) -> Client:
    """A client of the server at `url`. What is not given comes from the `client.*` options: lakeward.toml, then the
    environment (LAKEWARD_SERVER, LAKEWARD_TOKEN, LAKEWARD_TLS_CA); an address that is nowhere is that of the server
    which `lakeward up` runs in this folder. Nothing is sent before the first call."""
    from lakeward.client.client import Client

    resolved = resolve_server(url) if config is None else config
    return Client(url or resolved.get(options.CLIENT_SERVER), options=ClientOptions.of(resolved, token=token, ca=ca))


def __getattr__(name: str) -> Any:
    if name == "Client":
        from lakeward.client.client import Client

        return Client
    if name == "Table":
        from lakeward.client.table import Table

        return Table
    raise AttributeError(f"module 'lakeward.client' has no attribute {name!r}")
