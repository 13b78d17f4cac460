# SPDX-License-Identifier: Apache-2.0
"""SQL over union reads: each Lakeward table named in a query is handed to DuckDB as an Arrow stream, only its used
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import expressions as exp

from lakeward.errors import InvalidRequest
from lakeward.read.arrow import describe_freshness

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.client import Client


_CONFIG = {
    "autoinstall_known_extensions": "false",
    "enable_external_access": "false",
    "python_enable_replacements": "false",
}
_NO_FILES = "a query here reads Lakeward tables alone, no files; `lakeward write` brings a file into a table"


def run_sql(client: Client, query: str, mode: str = "union", as_of: str | None = None) -> tuple[pa.Table, list[str]]:
    """The result, and a line for each table that says how fresh it is. Raises `InvalidRequest` for SQL that
    is wrong.
    """
    import duckdb

    statement = _parse(query)
    notes = []
    with duckdb.connect(config=_CONFIG) as connection:
        for path in _tables(statement):
            result = client.read(path, mode=mode, as_of=as_of, columns=_used_columns(statement, path, client))
            _show(connection, path, result.to_table())
            notes.append(describe_freshness(result.bound))
        try:
            return connection.execute(statement.sql(dialect="duckdb")).to_arrow_table(), notes
        except duckdb.PermissionException as error:
            raise InvalidRequest(what="query", reason=_NO_FILES) from error
        except duckdb.Error as error:
            raise InvalidRequest(what="query", reason=str(error)) from error


def _show(connection: Any, path: str, rows: pa.Table) -> None:
    """Under its own name, so that a query may qualify columns by it and errors name it."""
    database, table = (exp.to_identifier(part, quoted=True).sql("duckdb") for part in path.split(".", 1))
    held = exp.to_identifier(path, quoted=True).sql("duckdb")
    connection.register(path, rows)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database}")
    connection.execute(f"CREATE VIEW {database}.{table} AS SELECT * FROM temp.{held}")  # noqa: S608 - quoted


def _parse(query: str) -> exp.Expression:
    try:
        statement: exp.Expression = sqlglot.parse_one(query, dialect="duckdb")
    except sqlglot.errors.ParseError as error:
        raise InvalidRequest(what="query", reason=str(error)) from error
    if not isinstance(statement, exp.Query):
        raise InvalidRequest(what="query", reason="only SELECT can be run here; write rows with `lakeward write`")
    return statement


def _tables(statement: exp.Expression) -> list[str]:
    """Paths of Lakeward tables: those named database.table. Names without a dot are the query's own (CTEs)."""
    names: set[str] = set()
    own = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    for node in statement.find_all(exp.Table):
        if isinstance(node.this, exp.Func):
            _check_function(node.this)
        elif node.catalog:
            raise InvalidRequest(what=f"table {node.sql('duckdb')}", reason="write it as database.table")
        elif node.db:
            names.add(f"{node.db}.{node.name}")
        elif node.name.lower() not in own:
            reason = _NO_FILES if "." in node.name or "/" in node.name else "write it as database.table"
            raise InvalidRequest(what=f"table {node.name}", reason=reason)
    return sorted(names)


def _check_function(function: exp.Func) -> None:
    """Functions that make rows of nothing are DuckDB's; those that open files are refused before anything is read."""
    name = function.name.lower() if isinstance(function, exp.Anonymous) else function.sql_name().lower()
    if name.startswith(("read_", "parquet_", "sniff_", "iceberg_")) or name.endswith("_scan") or name == "glob":
        raise InvalidRequest(what=f"query: {function.sql('duckdb')}", reason=_NO_FILES)


def _used_columns(statement: exp.Expression, path: str, client: Client) -> list[str] | None:
    """Columns the query names, so that only they travel; None (all) where a star or doubt is in it."""
    held = client.show_table(path).schema.names
    _check_case(path, held)
    if _needs_all(statement):
        return None
    names = {i.name.lower() for i in statement.find_all(exp.Identifier)}
    used = [n for n in held if n.lower() in names]
    return used or [held[0]]


def _needs_all(statement: exp.Expression) -> bool:
    """Stars, natural joins and pivots name no columns, and a table's name may stand for its whole row."""
    stars = any(not isinstance(star.parent, exp.Count) for star in statement.find_all(exp.Star))
    natural = any(join.method.upper() == "NATURAL" for join in statement.find_all(exp.Join))
    tables = {t.alias_or_name.lower() for t in statement.find_all(exp.Table)}
    rows = any(column.name.lower() in tables for column in statement.find_all(exp.Column))
    return stars or natural or rows or statement.find(exp.Pivot, exp.Columns) is not None


def _check_case(path: str, names: Sequence[str]) -> None:
    """DuckDB compares names without case, quoted ones too: it would show one column for the other."""
    spelled: dict[str, str] = {}
    for name in names:
        other = spelled.setdefault(name.lower(), name)
        if other != name:
            reason = (
                f"its columns {other} and {name} differ in case alone, which SQL here cannot tell apart; "
                f"`lakeward read {path} --columns {name}` can"
            )
            raise InvalidRequest(what=f"table {path}", reason=reason)
