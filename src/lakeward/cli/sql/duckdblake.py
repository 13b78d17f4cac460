# SPDX-License-Identifier: Apache-2.0
"""Reads a lake table with DuckDB's own Iceberg reader. `connect_duckdb` is public as `lakeward.duckdb.connect`; this
path stays for a version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.read.duckdblake import connect_duckdb, extension_file, quoted

if TYPE_CHECKING:
    from lakeward.client import Client

__all__ = ["connect_duckdb", "extension_file", "query_lake"]


def query_lake(client: Client, table: str, query: str) -> list[dict[str, Any]]:
    """Rows of a query over the view `lake`, which is the Iceberg table by its metadata path."""
    database, _, name = table.partition(".")
    loaded = client.server.ask("GET", f"/iceberg/v1/namespaces/{database}/tables/{name}")
    location = loaded["metadata-location"]
    with connect_duckdb() as connection:
        connection.execute("CREATE VIEW lake AS SELECT * FROM iceberg_scan('%s')" % quoted(location))  # noqa: S608, UP031 - quoted, and from our catalog
        rows: list[dict[str, Any]] = connection.execute(query).to_arrow_table().to_pylist()
        return rows
