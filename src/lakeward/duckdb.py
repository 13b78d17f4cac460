# SPDX-License-Identifier: Apache-2.0
"""DuckDB on lake tables: `lakeward.duckdb.connect()` has the server's catalog as `lake`."""

from __future__ import annotations

from typing import Any

from lakeward.client.options import ClientOptions, resolve_server
from lakeward.config import options

__all__ = ["connect"]


def connect(server: str | None = None, *, token: str | None = None, catalog: bool = True) -> Any:
    """A DuckDB connection with its Iceberg extension from the wheels: nothing is downloaded. The server's catalog is
    there as `lake`: `SELECT * FROM lake.shop.orders`.

    `server` None: the one that commands in this folder would ask. `token` None: that of settings or environment.
    `catalog` False: no server is asked, as for `iceberg_scan('metadata.json')`. Raises `InvalidRequest` where the
    extensions are not installed (`pip install 'lakeward[cli]'`)."""
    from lakeward.read.duckdblake import connect_duckdb

    if not catalog:
        return connect_duckdb()
    config = resolve_server(server)
    if token is None:
        shown = ClientOptions.of(config).connect(config.get(options.CLIENT_SERVER)).authorization
        token = None if shown is None else shown.removeprefix("Bearer ")
    return connect_duckdb(config.get(options.CLIENT_SERVER), token=token)
