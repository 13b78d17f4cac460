# SPDX-License-Identifier: Apache-2.0
"""DuckDB with its own Iceberg reader and our catalog: another engine's view of what we wrote."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from lakeward.errors import InvalidRequest
from lakeward.protocol.token import TokenSource

EXTENSIONS = ("avro", "httpfs", "iceberg")


def connect_duckdb(server: str | None = None, *, token: str | None = None) -> Any:
    """A connection with the Iceberg extension from the wheels: nothing is downloaded. With a server's URL its catalog
    is there as `lake`: `SELECT * FROM lake.db.orders`. `token` None: what the process was started with."""
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for name in EXTENSIONS:
        connection.execute(f"LOAD '{quoted(str(extension_file(name)))}'")
    if server is not None:
        attach_lake(connection, server, token or TokenSource.of_process().current())
    return connection


def attach_lake(connection: Any, server: str, token: str | None) -> None:
    access = "AUTHORIZATION_TYPE 'none'"
    if token is not None:
        connection.execute(f"CREATE SECRET lake_token (TYPE iceberg, TOKEN '{quoted(token)}')")
        access = "SECRET lake_token"
    endpoint = quoted(f"{server.rstrip('/')}/iceberg")
    connection.execute(f"ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '{endpoint}', {access})")


def extension_file(name: str) -> Path:
    try:
        module = importlib.import_module(f"duckdb_extension_{name}")
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            what=f"DuckDB's extension {name}", reason="it is not installed: pip install 'lakeward[cli]'"
        ) from error
    assert module.__file__ is not None
    extension_files = sorted(Path(module.__file__).parent.glob("extensions/*/*.duckdb_extension"))
    if not extension_files:
        raise InvalidRequest(what=f"DuckDB's extension {name}", reason="its package holds no extension file")
    return extension_files[0]


def quoted(text: str) -> str:
    return text.replace("'", "''")
