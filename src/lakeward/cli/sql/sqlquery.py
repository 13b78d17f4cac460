# SPDX-License-Identifier: Apache-2.0
"""SQL over union reads: each Lakeward table named in a query is handed to DuckDB as an Arrow stream, only its used
columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.errors import InvalidRequest
from lakeward.read.arrow import describe_freshness
from lakeward.read.sql import NO_FILES, named_tables, parse_query, quoted, spelling_hint, used_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.client import Client


_CONFIG = {
    "autoinstall_known_extensions": "false",
    "enable_external_access": "false",
    "python_enable_replacements": "false",
}


def run_sql(
    client: Client, query: str, mode: str = "union", as_of: str | None = None, **options: str | None
) -> tuple[pa.Table, list[str]]:
    """The result, and a line for each table that says how fresh it is. Raises `InvalidRequest` for SQL that
    is wrong.
    """
    import duckdb

    statement = parse_query(query)
    notes, names = [], list[str]()
    with duckdb.connect(config=_CONFIG) as connection:
        for path in named_tables(statement):
            held = client.show_table(path).schema.names
            names += held
            columns = used_columns(statement, path, held)
            result = client.read(path, mode=mode, as_of=as_of, columns=columns, **options)
            _show(connection, path, result.to_table())
            notes.append(describe_freshness(result.bound))
        try:
            return connection.execute(statement.sql(dialect="duckdb")).to_arrow_table(), notes
        except duckdb.PermissionException as error:
            raise InvalidRequest(what="query", reason=NO_FILES) from error
        except duckdb.Error as error:
            raise InvalidRequest(what="query", reason=str(error) + spelling_hint(statement, names)) from error


def _show(connection: Any, path: str, rows: pa.Table) -> None:
    """Under its own name, so that a query may qualify columns by it and errors name it."""
    database, table = (quoted(part) for part in path.split(".", 1))
    connection.register(path, rows)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database}")
    connection.execute(f"CREATE VIEW {database}.{table} AS SELECT * FROM temp.{quoted(path)}")  # noqa: S608 - quoted
