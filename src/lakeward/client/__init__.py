# SPDX-License-Identifier: Apache-2.0
"""The Python client: `connect()` gives a `Client`; tables are made over HTTP, rows travel over Arrow Flight."""

from __future__ import annotations

from lakeward.client.client import Client
from lakeward.client.options import ClientOptions
from lakeward.client.table import Table
from lakeward.config import Config, options, resolve

__all__ = ["Client", "ClientOptions", "Table", "connect"]


def connect(
    url: str | None = None, *, token: str | None = None, ca: str | None = None, config: Config | None = None
) -> Client:
    """A client of the server at `url`. What is not given comes from the `client.*` options: lakeward.toml, then the
    environment (LAKEWARD_SERVER, LAKEWARD_TOKEN, LAKEWARD_TLS_CA). Nothing is sent before the first call."""
    resolved = resolve() if config is None else config
    return Client(url or resolved.get(options.CLIENT_SERVER), options=ClientOptions.of(resolved, token=token, ca=ca))
