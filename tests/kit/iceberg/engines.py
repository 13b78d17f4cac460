# SPDX-License-Identifier: Apache-2.0
"""Other engines that read Iceberg tables: DuckDB, DataFusion on iceberg-rust, PyIceberg. Each gives an Arrow table."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
from pyiceberg.table import StaticTable

_EXTENSIONS = ("httpfs", "avro", "iceberg")


def duckdb_connection(s3: Mapping[str, str] | None = None) -> Any:
    """DuckDB with its Iceberg extension from the installed wheels; nothing is downloaded. `s3`: a catalog's `s3.*`
    options.
    """
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    for name in _EXTENSIONS:
        folder = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
        (file,) = folder.glob("extensions/*/*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    connection.execute("SET GLOBAL TimeZone = 'UTC'")  # of cursors too
    if s3:
        host = urlparse(s3["s3.endpoint"]).netloc
        secret = (
            f"TYPE s3, KEY_ID 'test', SECRET 'test', ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false, REGION "
            f"'{s3['s3.region']}'"
        )
        connection.execute(f"CREATE SECRET ({secret})")
    return connection


@lru_cache(1)
def _local_duckdb() -> Any:
    """One for all reads of local files, as its extensions take most of a second to load. It keeps nothing of a file."""
    connection = duckdb_connection()
    connection.execute("SET enable_external_file_cache = false")
    return connection


def read_duckdb(metadata_location: str, s3: Mapping[str, str] | None = None) -> pa.Table:
    with duckdb_connection(s3) if s3 else _local_duckdb().cursor() as connection:
        return connection.sql(f"SELECT * FROM iceberg_scan('{metadata_location}')").to_arrow_table()


def read_duckdb_rest(url: str, table: str, token: str | None = None) -> pa.Table:
    """Through the REST catalog, as a person attaches it."""
    with duckdb_connection() as connection:
        if token is None:
            access = "AUTHORIZATION_TYPE 'none'"
        else:
            connection.execute(f"CREATE SECRET catalog_token (TYPE iceberg, TOKEN '{token}')")
            access = "SECRET catalog_token"
        connection.execute(f"ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '{url}', {access})")
        return connection.sql(f"SELECT * FROM lake.{table}").to_arrow_table()


def read_datafusion(metadata_location: str, s3: Mapping[str, str] | None = None) -> pa.Table:
    from datafusion import SessionContext
    from pyiceberg_core.datafusion import IcebergDataFusionTable

    options = (
        {**s3, "s3.access-key-id": "test", "s3.secret-access-key": "test", "s3.path-style-access": "true"} if s3 else {}
    )
    provider = IcebergDataFusionTable(
        identifier=["db", "t"], metadata_location=metadata_location, file_io_properties=options
    )
    context = SessionContext()
    context.register_table("t", provider)
    return context.sql("SELECT * FROM t").to_arrow_table()


def read_pyiceberg(metadata_location: str, options: Mapping[str, str] | None = None) -> pa.Table:
    return StaticTable.from_metadata(metadata_location, dict(options or {})).scan().to_arrow()
