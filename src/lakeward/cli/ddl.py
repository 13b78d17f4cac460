# SPDX-License-Identifier: Apache-2.0
"""A whole `CREATE TABLE ... WITH (...)` statement, as Fluss users write it, parsed with sqlglot."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import sqlglot
from sqlglot import expressions as exp

from lakeward.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True)
class CreateStatement:
    """What the statement says. `columns` is SQL text that the client parses; bucket options are taken out of WITH."""

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
    cleaned = re.sub(r"\bNOT\s+ENFORCED\b", "", text, flags=re.IGNORECASE)
    cleaned, properties = _take_with(cleaned)
    cleaned, partition_by = _take_partitions(cleaned)
    statement = _parse(cleaned)
    schema = statement.this
    table = schema.this
    if not table.db:
        raise InvalidRequest(what=f"table {table.name}", reason="write it as database.table")
    buckets = properties.pop("bucket.num", "1")
    if not buckets.isdigit():
        raise InvalidRequest(what="bucket.num", reason=f"{buckets!r} is no whole number")
    return CreateStatement(
        path=f"{table.db}.{table.name}",
        columns=_columns_text(text),
        primary_key=_primary_key(schema),
        partition_by=partition_by,
        buckets=int(buckets),
        bucket_key=tuple(k.strip() for k in properties.pop("bucket.key", "").split(",") if k.strip()),
        if_not_exists=bool(statement.args.get("exists")),
        properties=properties,
    )


def _parse(text: str) -> exp.Create:
    try:
        statement = sqlglot.parse_one(_plain_types(text), dialect="spark")
    except sqlglot.errors.ParseError as error:
        first = error.errors[0] if error.errors else {}
        where = f"line {first.get('line')}, column {first.get('col')}: " if first else ""
        raise InvalidRequest(what="CREATE TABLE", reason=f"{where}{first.get('description', str(error))}") from error
    if not isinstance(statement, exp.Create) or not isinstance(statement.this, exp.Schema):
        raise InvalidRequest(what="statement", reason="it is no CREATE TABLE with columns")
    return statement


def _plain_types(text: str) -> str:
    """Types sqlglot does not know are not its matter here: columns are read from the text itself."""
    return re.sub(
        r"\b(ROW|TIMESTAMP_LTZ|TIME)\s*(\(\s*\d\s*\))?(?=\s*[,)<>]|\s+NOT|\s+COMMENT|\s+PRIMARY)", "STRING", text, flags=re.IGNORECASE
    )


def _take_with(text: str) -> tuple[str, dict[str, str]]:
    match = re.search(r"\bWITH\s*\((.*)\)\s*;?\s*$", text, flags=re.IGNORECASE | re.DOTALL)
    if not match:
        return text.rstrip().rstrip(";"), {}
    pairs = re.findall(r"'((?:[^']|'')*)'\s*=\s*'((?:[^']|'')*)'", match.group(1))
    if not pairs:
        raise InvalidRequest(what="WITH (...)", reason="write options as 'key' = 'value'")
    return text[: match.start()], {k.replace("''", "'"): v.replace("''", "'") for k, v in pairs}


def _take_partitions(text: str) -> tuple[str, tuple[str, ...]]:
    match = re.search(r"\bPARTITIONED\s+BY\s*\(([^)]*)\)", text, flags=re.IGNORECASE)
    if not match:
        return text, ()
    names = tuple(n.strip().strip("`") for n in match.group(1).split(","))
    return text[: match.start()] + text[match.end() :], names


def _primary_key(schema: exp.Schema) -> tuple[str, ...]:
    for part in schema.expressions:
        if isinstance(part, exp.PrimaryKey):
            return tuple(c.name for c in part.expressions)
        if isinstance(part, exp.ColumnDef) and any(isinstance(c.kind, exp.PrimaryKeyColumnConstraint) for c in part.constraints):
            return (part.name,)
    return ()


def _columns_text(text: str) -> str:
    """The column definitions between the outer parentheses, without constraints of the table."""
    start = text.index("(")
    depth, parts, at = 0, [], start + 1
    for i, sign in enumerate(text[start:], start):
        depth += (sign in "(<") - (sign in ")>")
        if (sign == "," and depth == 1) or depth == 0:
            parts.append(text[at:i].strip())
            at = i + 1
        if depth == 0:
            break
    columns = [p for p in parts if not re.match(r"(CONSTRAINT\b|PRIMARY\s+KEY\b)", p, flags=re.IGNORECASE)]
    return ", ".join(re.sub(r"\bPRIMARY\s+KEY\b(\s+NOT\s+ENFORCED\b)?", "", c, flags=re.IGNORECASE) for c in columns)
