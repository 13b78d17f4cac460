# SPDX-License-Identifier: Apache-2.0
"""The process that runs one query of a page: `python -m lakeward.server.query.box`. Rows come in by its input, the
answer goes out by its output; once they are in it can open no file and no connection, by DuckDB's settings and by the
system's limit on descriptors.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from typing import IO, Any

import duckdb
import pyarrow as pa
import pyarrow.dataset

from lakeward.server.query.celltext import MOST_ANSWER_CHARS, row_texts

_ADDRESS_SPACE_BYTES = 3 << 30
"""Libraries reserve more than they use: DuckDB's own limit is the one that is met first."""

_BATCH_ROWS = 500


def main(source: IO[bytes], target: IO[bytes]) -> None:
    try:
        answer = run(source)
    except (duckdb.Error, pa.ArrowException, MemoryError) as error:
        answer = {"error": str(error) or type(error).__name__}
    target.write(json.dumps(answer).encode())
    target.flush()


def run(source: IO[bytes]) -> dict[str, Any]:
    """A length and a JSON object first, then an Arrow stream for each table that it names."""
    (length,) = struct.unpack(">I", source.read(4))
    asked = json.loads(source.read(length))
    config = {
        "memory_limit": f"{asked['memory_mb']}MB",
        "threads": "1",
        "temp_directory": "",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
    }
    with duckdb.connect(config=config) as connection:
        for number, (database, table) in enumerate(asked["tables"]):
            _load(connection, pa.ipc.open_stream(source), f"source_{number}", database, table)
        connection.execute("SELECT 1").to_arrow_reader(1).read_all()  # loads what a result needs
        close_doors(connection)
        return _answer(connection, asked["query"], asked["rows"])


def close_doors(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, _ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def _load(connection: duckdb.DuckDBPyConnection, rows: Any, name: str, database: str, table: str) -> None:
    """A copy, so that a query may read it twice, and so that its bytes count."""
    connection.register(name, rows)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database}")
    connection.execute(f"CREATE TABLE {database}.{table} AS SELECT * FROM {name}")  # noqa: S608 - quoted by who sends
    connection.unregister(name)


def _answer(connection: duckdb.DuckDBPyConnection, query: str, limit: int) -> dict[str, Any]:
    reader = connection.execute(query).to_arrow_reader(_BATCH_ROWS)
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    columns = [{"name": f.name, "type": str(f.type), "number": any(n(f.type) for n in numbers)} for f in reader.schema]
    rows: list[list[str | None]] = []
    chars = 0
    for batch in reader:
        for row in row_texts(batch):
            chars += sum(len(cell or "") for cell in row)
            if len(rows) == limit or chars > MOST_ANSWER_CHARS:
                return {"columns": columns, "rows": rows, "cut": True}
            rows.append(row)
    return {"columns": columns, "rows": rows, "cut": False}


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
