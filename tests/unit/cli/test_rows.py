# SPDX-License-Identifier: Apache-2.0
"""Rows in and out of files: what is read is what was written, in every format, and what is wrong is named."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.cli.rowfiles import WriteFormat, format_of, read_file
from lakeward.cli.rowprint import ReadFormat, take, write_rows
from lakeward.client.columns import parse_columns
from lakeward.errors import InvalidRequest
from lakeward.model.arrow import to_arrow_type
from lakeward.model.schema import Schema

COLUMNS = (
    "id bigint not null, total decimal(10,2), at timestamp_ltz(3), d date, raw bytes, tags array<string>, m "
    "map<string,int>, "
    "who row<name string, born date>, f double"
)
SCHEMA = Schema(schema_id=1, columns=parse_columns(COLUMNS))
ARROW = pa.schema([pa.field(c.name, to_arrow_type(c.type)) for c in SCHEMA.columns])
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "total": Decimal("1.25"),
        "at": datetime(2026, 1, 1, 12, 30, 0, 5000, UTC),
        "d": date(2026, 1, 2),
        "raw": b"\x00\xff",
        "tags": ["a", "b"],
        "m": [("x", 1)],
        "who": {"name": "ö", "born": date(1990, 1, 1)},
        "f": 0.1,
    },
    {name: (2 if name == "id" else None) for name in SCHEMA.names},
]
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=ARROW)


def read_back(file: Path, kind: WriteFormat) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in read_file(str(file), kind, SCHEMA):
        found += batch if isinstance(batch, list) else batch.to_pylist()
    return found


@pytest.mark.parametrize("kind", [ReadFormat.JSON, ReadFormat.CSV, ReadFormat.ARROW])
def test_what_read_prints_write_takes(kind: ReadFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr("sys.stdout", out)
    write_rows(ARROW, [BATCH], kind)
    file = tmp_path / "rows"
    file.write_bytes(out.buffer.getvalue())
    assert read_back(file, WriteFormat(str(kind))) == ROWS


def test_parquet_and_arrow_files(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_batches([BATCH]), tmp_path / "rows.parquet")
    with pa.ipc.new_file(tmp_path / "rows.arrow", ARROW) as out:
        out.write_batch(BATCH)
    for name in ("rows.parquet", "rows.arrow"):
        assert read_back(tmp_path / name, format_of(name)) == ROWS


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1: no JSON"),
        ("[1]", "a line is one JSON object"),
        ('{"total": "much"}', "column total: 'much' is no decimal number"),
        ('{"at": "2026-01-01T00:00:00"}', "has no zone"),
        ('{"at": "2026-01-01T00:00:00.1234567Z"}', "finer than microseconds"),
        ('{"d": "tomorrow"}', "column d"),
        ('{"raw": "xyz"}', "column raw"),
    ],
)
def test_a_wrong_line_is_named(line: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(line)
    with pytest.raises(InvalidRequest) as caught:
        read_back(file, WriteFormat.JSON)
    assert words in caught.value.message


def test_numbers_in_json_are_exact_where_the_column_is(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": 1, "total": 0.1, "f": 0.1}\n\n{"id": 2, "total": 3}\n')
    assert read_back(file, WriteFormat.JSON) == [
        {"id": 1, "total": Decimal("0.1"), "f": 0.1},
        {"id": 2, "total": Decimal(3)},
    ]


def test_files_that_are_not_there_or_not_what_they_say(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no such file"):
        read_file(str(tmp_path / "none.csv"), WriteFormat.CSV, SCHEMA)
    with pytest.raises(InvalidRequest, match="--format"):
        format_of("rows.txt")
    (tmp_path / "rows.parquet").write_text("no parquet")
    with pytest.raises(InvalidRequest, match="cannot be read as parquet"):
        read_back(tmp_path / "rows.parquet", WriteFormat.PARQUET)
    assert format_of("-") is WriteFormat.JSON


def test_a_limit_cuts_inside_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    batches = [pa.record_batch({"n": [1, 2, 3]}), pa.record_batch({"n": [4, 5]})]
    write_rows(batches[0].schema, take(iter(batches), 4), ReadFormat.JSON)
    assert [json.loads(line)["n"] for line in capsys.readouterr().out.splitlines()] == [1, 2, 3, 4]
    assert list(take(iter(batches), 0)) == []
