# SPDX-License-Identifier: Apache-2.0
"""docs/reference/python.md from signatures and docstrings: what a program that writes and reads tables calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import lakeward.client
import lakeward.duckdb
import lakeward.spark
from lakeward.client.asyncwriter import AsyncWriter
from lakeward.client.client import Client
from lakeward.client.subscription import Subscription
from lakeward.client.table import Table
from lakeward.client.writer import BufferedWriter
from lakeward.read.request import request_of
from lakeward.read.result import ReadResult

SECTIONS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("Connecting", "lakeward", (lakeward.client.connect,)),
    ("Tables", "client", (Client,)),
    ("Writing and following one table", "table", (Table,)),
    ("A writer that gathers rows", "writer", (BufferedWriter,)),
    ("The same for asyncio", "writer", (AsyncWriter,)),
    ("A subscription", "subscription", (Subscription,)),
    ("Options of a read", "client.read", (request_of,)),
    ("What a read gives", "result", (ReadResult,)),
    ("DuckDB", "lakeward.duckdb", (lakeward.duckdb.connect,)),
    ("Spark", "lakeward.spark", (lakeward.spark.read, lakeward.spark.view, lakeward.spark.register)),
)
INSIDE = frozenset({"names_of", "fit", "fit_given", "route", "new_sender", "token", "info"})
"""Methods that other modules of ours call."""
HEAD = """# The Python API

Generated from the code. `pip install lakeward` has all of it but reads: these need `lakeward[iceberg]` (or the extra
of another format), and `lakeward.spark` needs `lakeward[spark]`. Errors are typed and in `lakeward.errors`; each says
what to do.

- **Several writes as one stream**: `table.writer()` gathers rows and sends them in the background; `flush()` returns
  when all of them are durable. A writer that is closed has sent everything, or raised.
- **Reading one's own writes**: a write gives a token, `client.read(path, at_least=token)` shows it.
- **Upserts of some columns** leave the others alone on rows that are there; `replace=True` writes whole rows.
- **Going on after a restart**: keep `subscription.offsets` with what you did, and give it to `subscribe(start=...)`.
- **Other libraries**: a read is an Arrow stream (`polars.from_arrow(result)`, `duckdb.from_arrow(result.reader())`),
  and has `to_table()`, `to_pandas()`, `to_polars()`, `to_duckdb()`."""


def render() -> str:
    return "\n\n".join([HEAD, *(part for section in SECTIONS for part in _section(*section))])


def _section(title: str, owner: str, members: tuple[Any, ...]) -> Iterator[str]:
    yield f"## {title}"
    for member in members:
        if not inspect.isclass(member):
            yield _callable(owner if member is request_of else f"{owner}.{member.__name__}", member)
            continue
        if text := inspect.getdoc(member):
            yield text
        if member is BufferedWriter:
            yield _callable("table.writer", member)
        for name, value in vars(member).items():
            if name.startswith("_") or name in INSIDE:
                continue
            if isinstance(value, property):
                yield f"### `{owner}.{name}`\n\n{inspect.getdoc(value) or ''}".rstrip()
            elif inspect.isfunction(value):
                yield _callable(f"{owner}.{name}", value)


def _callable(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    given = [p for p in signature.parameters.values() if p.name not in ("self", "table")]
    text, result = inspect.getdoc(function) or "", f" -> {signature.return_annotation}"
    if inspect.isclass(function):
        text, result = "", ""
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    return (
        f"### `{name.rpartition('.')[2]}`\n\n```python\n{prefix}{name}{_written(given)}{result}\n```\n\n{text}".rstrip()
    )


def _written(parameters: Sequence[inspect.Parameter]) -> str:
    """On one line, or one a line where that would be long."""
    parts: list[str] = []
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        stars = "**" if p.kind is p.VAR_KEYWORD else ""
        parts.append(f"{stars}{p.name}: {p.annotation}" + ("" if p.default is p.empty else f" = {p.default!r}"))
    line = f"({', '.join(parts)})"
    return line if len(line) <= 90 else "(\n    " + ",\n    ".join(parts) + ",\n)"
