# SPDX-License-Identifier: Apache-2.0
"""Tables and columns that a SELECT over Lakeward tables names. Parses the text only; nothing is read or run."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence

import sqlglot
from sqlglot import expressions as exp

from lakeward.errors import InvalidRequest

_UNDERLINE = re.compile(r"\x1b\[\d*m")
"""With which sqlglot marks a word in a terminal."""

_MOST_CHARACTERS = 100_000
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # it logs queries, which are nobody's but the caller's

NO_FILES = "a query here reads Lakeward tables alone, no files; `lakeward write` brings a file into a table"


def quoted(name: str) -> str:
    """As DuckDB spells it, whatever is in it."""
    return str(exp.to_identifier(name, quoted=True).sql("duckdb"))


def parse_query(query: str) -> exp.Expression:
    """Raises `InvalidRequest`."""
    if len(query) > _MOST_CHARACTERS:
        raise InvalidRequest(what="query", reason=f"it has more than {_MOST_CHARACTERS} characters")
    try:
        statement: exp.Expression = sqlglot.parse_one(query, dialect="duckdb")
        statement.sql("duckdb")  # what is nested too deeply to be written is refused as well
    except sqlglot.errors.SqlglotError as error:
        raise InvalidRequest(what="query", reason=_UNDERLINE.sub("", str(error))) from error
    except RecursionError as error:
        raise InvalidRequest(what="query", reason="it is nested too deeply") from error
    if not isinstance(statement, exp.Query):
        raise InvalidRequest(what="query", reason="only SELECT can be run here; write rows with `lakeward write`")
    return statement


def named_tables(statement: exp.Expression) -> list[str]:
    """Paths of Lakeward tables: those named database.table. Names without a dot are the query's own (CTEs)."""
    names: set[str] = set()
    cte_names = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    for node in statement.find_all(exp.Table):
        if isinstance(node.this, exp.Func):
            _check_function(node.this)
        elif node.catalog:
            raise InvalidRequest(what=f"table {node.sql('duckdb')}", reason="write it as database.table")
        elif node.db:
            names.add(f"{node.db}.{node.name}")
        elif node.name.lower() not in cte_names:
            reason = NO_FILES if "." in node.name or "/" in node.name else "write it as database.table"
            raise InvalidRequest(what=f"table {node.name}", reason=reason)
    return sorted(names)


def _check_function(function: exp.Func) -> None:
    """Functions that make rows of nothing are DuckDB's; those that open files are refused before anything is read."""
    name = function.name.lower() if isinstance(function, exp.Anonymous) else function.sql_name().lower()
    if name.startswith(("read_", "parquet_", "sniff_", "iceberg_")) or name.endswith("_scan") or name == "glob":
        raise InvalidRequest(what=f"query: {function.sql('duckdb')}", reason=NO_FILES)


def used_columns(statement: exp.Expression, path: str, held: Sequence[str]) -> list[str] | None:
    """Columns the query names, so that only they travel; None (all) where a star or doubt is in it."""
    _check_case(path, held)
    if _needs_all(statement):
        return None
    names = {i.name.lower() for i in statement.find_all(exp.Identifier)}
    used = [n for n in held if n.lower() in names]
    return used or [held[0]]


def spelling_hint(statement: exp.Expression, held: Iterable[str]) -> str:
    """For a query that failed: how columns are written whose names are not one word, where it names their beginning."""
    words = {i.name.lower() for i in statement.find_all(exp.Identifier)}
    odd = [n for n in held if not n.isidentifier() and n.lower() not in words and _first_word(n) in words]
    return f"\nA name that is not one word stands in double quotes: {', '.join(map(quoted, odd))}" if odd else ""


def _first_word(name: str) -> str:
    return (re.match(r"\w*", name) or [""])[0].lower()


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
