# SPDX-License-Identifier: Apache-2.0
"""The process that runs a page's query: whatever reaches it, it opens no file, changes no setting, and answers."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest


def ask(query: str, rows: int = 3, memory_mb: int = 64) -> dict[str, Any]:
    """As the server does it, past the look that it takes at the query first."""
    header = json.dumps({"query": query, "tables": [["a", '"b c"']], "rows": rows, "memory_mb": memory_mb}).encode()
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"id": [1, 2]})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    sent = struct.pack(">I", len(header)) + header + sink.getvalue().to_pybytes()
    box = [sys.executable, "-m", "lakeward.server.query.box"]
    done = subprocess.run(box, input=sent, capture_output=True, timeout=120, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_rows_come_back_and_are_cut() -> None:
    answer = ask('SELECT x.id, y.id FROM a."b c" x, a."b c" y ORDER BY 1, 2')
    assert answer["rows"] == [["1", "1"], ["1", "2"], ["2", "1"]]
    assert answer["cut"] is True
    assert answer["columns"][0] == {"name": "id", "type": "int64", "number": True}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')", "file system operations are disabled"),
        ("SET enable_external_access = true", "configuration has been locked"),
        ("SELECT list(range) FROM range(1000000000)", "Out of Memory"),
        pytest.param("LOAD httpfs", "disabled", marks=pytest.mark.soak),
        pytest.param("COPY (SELECT 1) TO '/tmp/x'", "disabled", marks=pytest.mark.soak),
        pytest.param("ATTACH '/tmp/x.db'", "disabled", marks=pytest.mark.soak),
    ],
)
def test_nothing_else_is_reached(query: str, words: str) -> None:
    assert words in ask(query)["error"]
