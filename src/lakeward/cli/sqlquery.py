# SPDX-License-Identifier: Apache-2.0
"""SQL over union reads: each Lakeward table named in a query is handed to DuckDB as an Arrow stream, only its used
columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import expressions as exp
from sqlglot.optimizer.scope import traverse_scope

from lakeward.errors import InvalidRequest
from lakeward.read.arrow import describe_freshness

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.client import Client


def run_sql(client: Client, query: str, mode: str = "union") -> tuple[pa.Table, list[str]]:
    """The result, and a line for each table that says how fresh it is. Raises `InvalidRequest` for SQL that
    is wrong.
    """
    import duckdb

    statement = _parse(query)
    tables = _tables(statement)
    notes = []
    with duckdb.connect(
        config={"autoinstall_known_extensions": "false", "enable_external_access": "false"}
    ) as connection:
        for index, path in enumerate(sorted(tables)):
            result = client.read(path, mode=mode, columns=_used_columns(statement, path, client))
            name = f"lakeward_{index}"
            connection.register(name, result.to_table())
            notes.append(describe_freshness(result.bound))
            for node in tables[path]:
                node.replace(exp.alias_(exp.to_table(name), node.alias or node.name, table=True))
        try:
            return connection.execute(statement.sql(dialect="duckdb")).to_arrow_table(), notes
        except duckdb.Error as error:
            raise InvalidRequest(what="query", reason=str(error)) from error


def _parse(query: str) -> exp.Expression:
    try:
        statement: exp.Expression = sqlglot.parse_one(query, dialect="duckdb")
    except sqlglot.errors.ParseError as error:
        raise InvalidRequest(what="query", reason=str(error)) from error
    if not isinstance(statement, exp.Query):
        raise InvalidRequest(what="query", reason="only SELECT can be run here; write rows with `lakeward write`")
    return statement


def _tables(statement: exp.Expression) -> dict[str, list[Any]]:
    """Lakeward tables by path: those named database.table. Names without a dot are the query's own (CTEs)."""
    found: dict[str, list[Any]] = {}
    for node in statement.find_all(exp.Table):
        if node.db:
            found.setdefault(f"{node.db}.{node.name}", []).append(node)
        elif node.name not in {cte.alias for cte in statement.find_all(exp.CTE)}:
            raise InvalidRequest(what=f"table {node.name}", reason="write it as database.table")
    return found


def _used_columns(statement: exp.Expression, path: str, client: Client) -> list[str] | None:
    """Columns the query names, so that only they travel; None (all) where a star or doubt is in it."""
    if any(True for _ in statement.find_all(exp.Star)) and not _only_counted(statement):
        return None
    names = {c.name.lower() for scope in traverse_scope(statement) for c in scope.columns}
    held = client.show_table(path).schema.names
    used = [n for n in held if n.lower() in names]
    return used or [held[0]]


def _only_counted(statement: exp.Expression) -> bool:
    return all(isinstance(star.parent, exp.Count) for star in statement.find_all(exp.Star))
