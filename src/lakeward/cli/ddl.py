# SPDX-License-Identifier: Apache-2.0
"""A whole `CREATE TABLE ... WITH (...)` statement, as Fluss users write it, parsed with sqlglot."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import sqlglot
from sqlglot import expressions as exp

from lakeward.errors import InvalidRequest

_SIGN = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)*`|[(),<>]")
"""Tokens that split a column list. Quoted text is one token."""

_ENFORCED = re.compile(r"\bNOT\s+ENFORCED\b", flags=re.IGNORECASE)
_CONSTRAINT = re.compile(r"(CONSTRAINT\b|PRIMARY\s+KEY\b)", flags=re.IGNORECASE)
_KEY = re.compile(r"\bPRIMARY\s+KEY\b(\s+NOT\s+ENFORCED\b)?", flags=re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class CreateStatement:
    """The parsed statement. `columns` is SQL text that the client parses; bucket options are taken out of WITH."""

    path: str
    columns: str
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    buckets: int = 1
    bucket_key: tuple[str, ...] = ()
    if_not_exists: bool = False
    properties: dict[str, str] = field(default_factory=dict)


def parse_create(text: str) -> CreateStatement:
    """Raises `InvalidRequest` that names what is wrong in the statement."""
    cleaned, properties = _take_with(text)
    cleaned, partition_by = _take_partitions(cleaned)
    head, parts = _split_columns(cleaned)
    statement = _parse(f"{head} ({', '.join(_simplified(p) for p in parts)})")
    schema = statement.this
    table = schema.this
    if not table.db:
        raise InvalidRequest(what=f"table {table.name}", reason="write it as database.table")
    buckets = properties.pop("bucket.num", "1")
    if not buckets.isdigit():
        raise InvalidRequest(what="bucket.num", reason=f"{buckets!r} is no whole number")
    return CreateStatement(
        path=f"{table.db}.{table.name}",
        columns=", ".join(_KEY.sub("", p).strip() for p in parts if not _CONSTRAINT.match(p)),
        primary_key=_primary_key(schema),
        partition_by=partition_by,
        buckets=int(buckets),
        bucket_key=tuple(k.strip() for k in properties.pop("bucket.key", "").split(",") if k.strip()),
        if_not_exists=bool(statement.args.get("exists")),
        properties=properties,
    )


def _parse(text: str) -> exp.Create:
    """The statement with every column's type made STRING: types are read by our own parser, not by sqlglot."""
    try:
        statement = sqlglot.parse_one(text, dialect="spark")
    except sqlglot.errors.ParseError as error:
        first = error.errors[0] if error.errors else {}
        raise InvalidRequest(what="CREATE TABLE", reason=str(first.get("description", error))) from error
    if not isinstance(statement, exp.Create) or not isinstance(statement.this, exp.Schema):
        raise InvalidRequest(what="statement", reason="it is no CREATE TABLE with columns")
    return statement


def _split_columns(text: str) -> tuple[str, list[str]]:
    """Text before the outer parentheses, and the parts between them: columns and constraints."""
    start = text.find("(")
    if start < 0:
        raise InvalidRequest(what="statement", reason="it is no CREATE TABLE with columns in parentheses")
    depth, parts, at = 0, [], start + 1
    for match in _SIGN.finditer(text, start):
        sign = match.group()
        depth += (sign in "(<") - (sign in ")>")
        if (sign == "," and depth == 1) or depth == 0:
            parts.append(text[at : match.start()].strip())
            at = match.end()
        if depth == 0:
            return text[:start], parts
    raise InvalidRequest(what="CREATE TABLE", reason="a parenthesis is not closed")


def _simplified(part: str) -> str:
    if _CONSTRAINT.match(part):
        return _ENFORCED.sub("", part)
    name = re.match(r"`(?:[^`]|``)+`|\S+", part)
    if name is None:
        raise InvalidRequest(what="CREATE TABLE", reason="a column has no name")
    return f"{name.group()} STRING{' PRIMARY KEY' if _KEY.search(part) else ''}"


def _take_with(text: str) -> tuple[str, dict[str, str]]:
    match = re.search(r"\bWITH\s*\((.*)\)\s*;?\s*$", text, flags=re.IGNORECASE | re.DOTALL)
    if not match:
        return text.rstrip().rstrip(";"), {}
    pairs = re.findall(r"'((?:[^']|'')*)'\s*=\s*'((?:[^']|'')*)'", match.group(1))
    if not pairs:
        raise InvalidRequest(what="WITH (...)", reason="write options as 'key' = 'value'")
    return text[: match.start()], {k.replace("''", "'"): v.replace("''", "'") for k, v in pairs}


def _take_partitions(text: str) -> tuple[str, tuple[str, ...]]:
    match = re.search(r"\bPARTITIONED\s+BY\s*\(((?:[^()]|\([^()]*\))*)\)", text, flags=re.IGNORECASE)
    if not match:
        return text, ()
    names = tuple(n.strip().strip("`") for n in match.group(1).split(","))
    return text[: match.start()] + text[match.end() :], names


def _primary_key(schema: exp.Schema) -> tuple[str, ...]:
    for part in schema.expressions:
        if isinstance(part, exp.PrimaryKey):
            return tuple(c.name for c in part.expressions)
        if isinstance(part, exp.ColumnDef) and any(
            isinstance(c.kind, exp.PrimaryKeyColumnConstraint) for c in part.constraints
        ):
            return (part.name,)
    return ()
