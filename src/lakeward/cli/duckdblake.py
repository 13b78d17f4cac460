# SPDX-License-Identifier: Apache-2.0
"""Reads a lake table with DuckDB's own Iceberg reader: another engine's view of what we wrote."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.errors import InvalidRequest

if TYPE_CHECKING:
    from lakeward.client import Client

EXTENSIONS = ("avro", "iceberg")


def query_lake(client: Client, table: str, query: str) -> list[dict[str, Any]]:
    """Rows of a query over the view `lake`, which is the Iceberg table by its metadata path."""
    database, _, name = table.partition(".")
    loaded = client.server.ask("GET", f"/iceberg/v1/namespaces/{database}/tables/{name}")
    location = loaded["metadata-location"]
    with connect_duckdb() as connection:
        connection.execute("CREATE VIEW lake AS SELECT * FROM iceberg_scan('%s')" % _quoted(location))  # noqa: S608, UP031 - quoted, and from our catalog
        rows: list[dict[str, Any]] = connection.execute(query).to_arrow_table().to_pylist()
        return rows


def connect_duckdb() -> Any:
    """A connection with the Iceberg extension from the wheels: nothing is downloaded."""
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for name in EXTENSIONS:
        connection.execute(f"LOAD '{_quoted(str(extension_file(name)))}'")
    return connection


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


def _quoted(text: str) -> str:
    return text.replace("'", "''")
