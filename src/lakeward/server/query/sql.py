# SPDX-License-Identifier: Apache-2.0
"""SQL of a page: what the query names is read as the token allows, and handed to a `box` that is ended at its limit."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.errors import InvalidRequest, TimedOut
from lakeward.model import TablePath
from lakeward.protocol.alterstatement import parse_alter
from lakeward.protocol.auth import Role, Token
from lakeward.protocol.operate import SqlQuery
from lakeward.read.arrow import describe_freshness, request_of
from lakeward.server.lakerights import check_altered
from lakeward.server.lakethreads import AtOnce
from lakeward.server.query.celltext import MOST_ANSWER_CHARS
from lakeward.server.query.localread import open_here
from lakeward.server.services import Services

if TYPE_CHECKING:
    from sqlglot import expressions as exp

LIMIT_S = 30.0
MEMORY_MB = 512
MOST_READ_BYTES = 256 << 20
"""Arrow bytes of all tables of a query."""

MOST_OF_TOKEN, MOST_AT_ONCE = 1, 3
"""Queries under way: each is a process of up to `MEMORY_MB`."""

_MOST_ANSWER_BYTES = 8 * MOST_ANSWER_CHARS
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Environment variables that are passed on: the others may be secrets."""


class SqlDoor:
    """Thread-safe; a call blocks until its answer is there or its time is over."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._running = AtOnce("SQL queries under way", of_token=MOST_OF_TOKEN, in_all=MOST_AT_ONCE)

    def answer(self, asked: SqlQuery, token: Token) -> dict[str, Any]:
        """Raises `InvalidRequest`, `Forbidden`, `QuotaExceeded`, `TimedOut`, and what a read of a table raises."""
        if find_spec("duckdb") is None or find_spec("sqlglot") is None:
            raise InvalidRequest(what="query", reason="the server has no DuckDB: pip install 'lakeward[cli]' there")
        from lakeward.read.sql import named_tables, parse_query

        statement = parse_query(asked.query)
        paths = [TablePath.parse(name) for name in named_tables(statement)]
        for path in paths:
            token.check_table(path, f"a query of {path}")
        with self._running.counted(token.name):
            return self._run(statement, paths, asked)

    def _run(self, statement: exp.Expression, paths: list[TablePath], asked: SqlQuery) -> dict[str, Any]:
        from lakeward.read.sql import quoted, spelling_hint

        names = [name for path in paths for name in self._services.store.load_table(path).schema.names]
        header = {
            "query": statement.sql(dialect="duckdb"),
            "tables": [[quoted(part) for part in str(path).split(".", 1)] for path in paths],
            "rows": asked.rows,
            "memory_mb": MEMORY_MB,
        }
        with _box(LIMIT_S) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            notes: list[str] = []
            with suppress(BrokenPipeError), process.stdin as target:  # who closed early says why
                text = json.dumps(header).encode()
                target.write(struct.pack(">I", len(text)) + text)
                notes = self._send(target, statement, paths, asked)
            answer_bytes = process.stdout.read(_MOST_ANSWER_BYTES)
        return {**_read(answer_bytes, process.returncode, spelling_hint(statement, names)), "notes": notes}

    def _send(self, target: IO[bytes], statement: exp.Expression, paths: list[TablePath], asked: SqlQuery) -> list[str]:
        from lakeward.read.sql import used_columns

        notes, remaining_bytes = [], MOST_READ_BYTES
        for path in paths:
            names = self._services.store.load_table(path).schema.names
            columns = None if asked.as_of_schema else used_columns(statement, str(path), names)
            request = request_of(
                path,
                columns=columns,
                mode=asked.mode,
                as_of=asked.as_of,
                cut=asked.cut,
                as_of_schema=asked.as_of_schema,
            )
            with open_here(self._services, request) as result, pa.ipc.new_stream(target, result.schema) as writer:
                with closing(iter(result)) as batches:  # type: ignore[type-var]
                    for batch in batches:
                        remaining_bytes -= batch.nbytes
                        if remaining_bytes < 0:
                            raise InvalidRequest(what=f"query of {path}", reason=_TOO_MUCH)
                        writer.write_batch(batch)
                notes.append(describe_freshness(result.bound))
        return notes


def run_alter(services: Services, asked: SqlQuery, token: Token) -> dict[str, Any]:
    """ALTER TABLE with the rights and checks of the table's PATCH, its plan as rows. Raises `InvalidRequest`,
    `Forbidden`, `TableNotFound`, and `InvalidAlter` before anything is changed."""
    parsed = parse_alter(asked.query)
    path, what = TablePath.parse(parsed.path), f"ALTER TABLE {parsed.path}"
    token.check_role(Role.ADMIN, what)
    token.check_table(path, what)
    check_altered(services, token, path, parsed.change.properties)
    services.quota.check_change(token, path, parsed.change, services.store)
    planned = services.federation.alter(path, replace(parsed.change, dry_run=True))
    if parsed.change.dry_run:
        outcome = f"nothing was changed; {path} would have schema {planned.table.schema.schema_id}"
        return _spelled([*planned.plan, outcome], ())
    altered = services.federation.alter(path, parsed.change)
    done = f"altered {path}: schema {altered.table.schema.schema_id}"
    return _spelled([*planned.plan, done], altered.warnings)


def _spelled(lines: list[str], warnings: tuple[str, ...]) -> dict[str, Any]:
    return {"columns": [{"name": "plan", "type": "STRING"}], "rows": [[line] for line in lines], "notes": [*warnings]}


_TOO_MUCH = (
    f"its columns are more than {MOST_READ_BYTES >> 20} MB; name fewer of them, or use `lakeward sql` or an engine "
    "over the catalog"
)


@contextmanager
def _box(limit_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """The process, ended at the limit and when the block is left. Raises `TimedOut` where the limit came first."""
    environment = {k: v for k, v in os.environ.items() if k in _KEPT_VARIABLES}
    process = subprocess.Popen(
        [sys.executable, "-m", "lakeward.server.query.box"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield process
    except BaseException as error:
        process.kill()
        if not late.is_set() or not isinstance(error, Exception):
            raise
    finally:
        timer.cancel()
        if process.stdout is not None:
            process.stdout.close()
        process.wait()
    if late.is_set():
        raise TimedOut(what="the query", limit_s=limit_s, state="it was ended; read less, or use `lakeward sql`")


def _read(told: bytes, code: int, hint: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(told)
    except ValueError:
        reason = f"it ended without an answer ({code}): it needs more than {MEMORY_MB} MB, or the server's log says why"
        raise InvalidRequest(what="query", reason=reason) from None
    if str(answer.get("error", "")).startswith("Out of Memory"):
        raise InvalidRequest(
            what="query", reason=f"it needs more than {MEMORY_MB} MB; read less, or use `lakeward sql`"
        )
    if "error" in answer:
        raise InvalidRequest(what="query", reason=answer["error"] + hint)
    return answer
