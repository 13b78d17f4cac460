# SPDX-License-Identifier: Apache-2.0
"""SQL over union reads: each Lakeward table named in a query is handed to DuckDB as an Arrow stream, only its used
columns.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lakeward.errors import InvalidRequest
from lakeward.protocol.alterstatement import parse_alter
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
    client: Client,
    query: str,
    mode: str = "union",
    as_of: str | None = None,
    *,
    as_of_schema: bool = False,
    **options: str | None,
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
            columns = None if as_of_schema else used_columns(statement, path, held)
            result = client.read(path, mode=mode, as_of=as_of, as_of_schema=as_of_schema, columns=columns, **options)
            _show(connection, path, result.to_table())
            notes.append(describe_freshness(result.bound))
        try:
            return connection.execute(statement.sql(dialect="duckdb")).to_arrow_table(), notes
        except duckdb.PermissionException as error:
            raise InvalidRequest(what="query", reason=NO_FILES) from error
        except duckdb.Error as error:
            raise InvalidRequest(what="query", reason=str(error) + spelling_hint(statement, names)) from error


def run_alter(client: Client, statement: str) -> list[str]:
    """Runs an ALTER TABLE, or explains it. Its plan, then the outcome, line by line. Raises `InvalidRequest`,
    `InvalidAlter`."""
    parsed = parse_alter(statement)
    asked = parsed.change.column_changes()
    alter = partial(
        client.alter_table,
        parsed.path,
        add_columns=asked.add,
        rename=asked.rename,
        drop=asked.drop,
        widen=parsed.change.widen_columns,
        nullable=asked.nullable,
        comments=asked.comments,
        after=asked.after,
        properties=parsed.change.properties,
    )
    planned = alter(dry_run=True)
    lines = list(planned.plan)
    if parsed.change.dry_run:
        return [*lines, f"nothing was changed; {parsed.path} would have schema {planned.info.schema.schema_id}"]
    altered = alter()
    warnings = [f"warning: {w}" for w in altered.warnings]
    return [*lines, *warnings, f"altered {parsed.path}: schema {altered.info.schema.schema_id}"]


def _show(connection: Any, path: str, rows: pa.Table) -> None:
    """Under its own name, so that a query may qualify columns by it and errors name it."""
    database, table = (quoted(part) for part in path.split(".", 1))
    connection.register(path, rows)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database}")
    connection.execute(f"CREATE VIEW {database}.{table} AS SELECT * FROM temp.{quoted(path)}")  # noqa: S608 - quoted
