# SPDX-License-Identifier: Apache-2.0
"""Rows in and out of files: what is read is what was written, in every format, and what is wrong is named."""

from __future__ import annotations

import csv
import gzip
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.cli.files.cellformat import CellFormat
from lakeward.cli.files.filerows import FileShape, Rejects
from lakeward.cli.files.rowfiles import WriteFormat, find_files, format_of, read_file
from lakeward.cli.files.rowprint import ReadFormat, take, write_rows
from lakeward.client.columns import parse_columns
from lakeward.errors import InvalidRequest
from lakeward.model import Schema, to_arrow_type

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
    for chunk in read_file(str(file), kind, SCHEMA):
        found += chunk.rows if isinstance(chunk.rows, list) else chunk.rows.to_pylist()
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
        ("{", "line 1, column 2: no JSON"),
        ("[1]", "line 1: a row is one JSON object"),
        ("[{},\n 5]", "line 2: a row is one JSON object"),
        ('{"total": "much"}', "column total: 'much' is not a decimal number"),
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


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ('"2\n3,3\n', "line 3, column f: a quote that is never closed"),
        ('"2"z\n3,3\n', "line 3: text behind a closed quote"),
    ],
)
def test_a_wrong_quote_is_named(last: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(f"id,f\n1,1\n2,{last}")
    with pytest.raises(InvalidRequest) as caught:
        read_back(file, WriteFormat.CSV)
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


def table_of(columns: str) -> Schema:
    return Schema(schema_id=1, columns=parse_columns(columns))


def rows_of(text: str | bytes, columns: str, tmp_path: Path, name: str = "rows.csv", **shape: Any) -> list[Any]:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    chunks = read_file(str(file), format_of(name), table_of(columns), FileShape(**shape))
    return [row for c in chunks for row in (c.rows if isinstance(c.rows, list) else c.rows.to_pylist())]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_as_people_have_it(delimiter: str, tmp_path: Path) -> None:
    text = delimiter.join(("id", "name", "d")) + "\r\n"
    for cells in (("1", f'"a {delimiter} ""b""\nc"', " 2026-01-31"), ("2", "", ""), ("3", '""', "")):
        text += delimiter.join(cells) + "\r\n"
    assert rows_of(text, "id int, name string, d date", tmp_path) == [
        {"id": 1, "name": f'a {delimiter} "b"\nc', "d": date(2026, 1, 31)},
        {"id": 2, "name": None, "d": None},
        {"id": 3, "name": "", "d": None},
    ]


def test_csv_options(tmp_path: Path) -> None:
    text = "Order No,When\n7,31.01.2026\n8,-\n"
    shape: dict[str, Any] = {
        "renamed": {"Order No": "id", "When": "d"},
        "cells": CellFormat(date_format="%d.%m.%Y", nulls=("-",)),
    }
    assert rows_of(text, "id int, d date", tmp_path, **shape) == [
        {"id": 7, "d": date(2026, 1, 31)},
        {"id": 8, "d": None},
    ]
    assert rows_of("1,x\n2,y\n", "id int, name string", tmp_path)[1] == {"id": 2, "name": "y"}
    assert rows_of("id,name\n1,é\n".encode("latin-1"), "id int, name string", tmp_path) == [{"id": 1, "name": "é"}]
    assert rows_of("id\n1\n".encode("utf-16"), "id int", tmp_path) == [{"id": 1}]
    packed = gzip.compress(b"id\n5\n")
    assert rows_of(packed, "id int", tmp_path, "rows.csv.gz") == [{"id": 5}]
    assert rows_of(pa.compress(b'[{"id": 6},\n{"id": 7}]', "zstd", asbytes=True), "id int", tmp_path, "r.json.zst") == [
        {"id": 6},
        {"id": 7},
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('id,name\n1,"a\nb"\nx,c\n', "line 4, column id: 'x' is no whole number"),
        ("id,name\n1,a\n\n99999999999,b\n", "line 4, column id: '99999999999' is no whole number that fits"),
        ("id,name\n1,a,b\n", "line 2: 3 cells where 2 are expected in '1,a,b'"),
        ('id,name\n1,"a\nb"\n\n2,c\n3\n', "line 6: 1 cell where 2 are expected in '3'"),
        ('\ufeffid,name\n1,"ä\nb"\n3\n', "line 4: 1 cell where 2 are expected in '3'"),
        ("id,nom\n1,a\n", "line 1: the table has no column 'nom'; it has id, name. --columns"),
        ("id,id\n1,2\n", "line 1: column id is there more than once"),
        ("", "line 1: the file is empty"),
        ("id,name\n1," + "x" * 200_000 + "\ny,b\n", "line 3, column id: 'y' is no whole number that fits INT"),
        ("id,name\r1,a\ry,b\r", "line 3, column id: 'y'"),
    ],
)
def test_a_wrong_cell_is_named_by_line_and_column(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rows_of(text, "id int, name string", tmp_path)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"encoding": "klingon"}, "--encoding klingon: it is not known"),
        ({"delimiter": ";;"}, "--delimiter ;;: it is one character"),
        ({"renamed": {"No": "nope"}}, "--columns: the table has no column 'nope'; it has id, name"),
        ({"renamed": {"No": "id"}}, "--columns names 'No'; the file has id, name"),
    ],
)
def test_a_wrong_word_about_a_file_is_refused(shape: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=words):
        rows_of("id,name\n1,a\n", "id int, name string", tmp_path, **shape)


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.jsonl", "rows.parquet", "rows.arrow"])
def test_what_is_no_such_file_is_said(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=name):
        rows_of(bytes(range(255, 1, -1)) * 40, "id int, name string", tmp_path, name)


def test_bad_rows_are_put_aside_with_their_reasons(tmp_path: Path) -> None:
    file, aside = tmp_path / "rows.csv", tmp_path / "bad.csv"
    file.write_text("id,d\n1,2026-01-01\nx,2026-01-02\n3\n4,never\n5,2026-01-05\n")
    with Rejects(aside) as rejects:
        chunks = list(read_file(str(file), WriteFormat.CSV, table_of("id int, d date"), FileShape(), rejects))
    assert [r["id"] for c in chunks for r in c.rows.to_pylist()] == [1, 5]
    assert [chunks[0].place(i).number for i in range(2)] == [2, 6]
    with aside.open() as source:
        written = [(r["line"], r["column"], r["value"]) for r in csv.DictReader(source)]
    assert sorted(written) == [("3", "id", "x"), ("4", "", "3"), ("5", "d", "never")]
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"id": 1}\n{"id": \n{"d": "x"}\n{"id": 2}\n')
    with Rejects(aside) as rejects:
        read = list(read_file(str(lines), WriteFormat.JSON, table_of("id int, d date"), FileShape(), rejects))
    assert ([r["id"] for c in read for r in c.rows], rejects.count) == ([1, 2], 2)


def test_patterns_and_folders_are_their_files(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv.gz", "c.txt", "_part.csv"):
        (tmp_path / name).touch()
    assert find_files([str(tmp_path)]) == [str(tmp_path / "a.csv.gz"), str(tmp_path / "b.csv")]
    assert find_files([str(tmp_path / "*.csv")]) == [str(tmp_path / "_part.csv"), str(tmp_path / "b.csv")]
    with pytest.raises(InvalidRequest, match="none match"):
        find_files([str(tmp_path / "*.parquet")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidRequest, match=r"no file in it ends in .*\.csv"):
        find_files(["-", str(tmp_path / "empty")])
    assert find_files([str(tmp_path / "empty")], may_be_empty=True) == []


def test_columns_of_one_name_are_all_shown(capsys: pytest.CaptureFixture[str]) -> None:
    batch = pa.record_batch([pa.array([1]), pa.array([2]), pa.array([3])], names=["id", "id", "id_1"])
    write_rows(batch.schema, [batch], ReadFormat.JSON)
    write_rows(batch.schema, [batch], ReadFormat.TABLE)
    out = capsys.readouterr().out.splitlines()
    assert json.loads(out[0]) == {"id": 1, "id_2": 2, "id_1": 3}
    assert out[1].split() == ["id", "id", "id_1"]
    assert out[2].split() == ["1", "2", "3"]


def test_how_much_of_a_file_is_read_is_known(tmp_path: Path) -> None:
    rows = 25_000
    (tmp_path / "a.csv").write_text("id,name\n" + "".join(f'{i},"name {i}"\n' for i in range(rows)))
    (tmp_path / "a.jsonl").write_text("".join(f'{{"id": {i}, "name": "x"}}\n' for i in range(rows)))
    pq.write_table(pa.table({"id": range(rows)}), tmp_path / "a.parquet")
    for name, off in (("a.csv", 0.2), ("a.jsonl", 0.2), ("a.parquet", 0)):
        chunks = list(read_file(str(tmp_path / name), format_of(name), table_of("id int, name string")))
        done = 0
        for chunk in chunks:
            done += len(chunk)
            assert chunk.part == pytest.approx(done / rows, abs=off)


def test_a_moment_that_is_too_fine_is_named_with_the_way_out(tmp_path: Path) -> None:
    for text in ("2026-01-01 00:00:00.123456", "2026-01-01T00:00:00.1234Z"):
        kind = "timestamp_ltz(3)" if text.endswith("Z") else "timestamp(3)"
        with pytest.raises(InvalidRequest, match="finer than the column, and would be cut; round it, or make"):
            rows_of(f"at\n{text}\n", f"at {kind}", tmp_path)


def test_a_character_of_another_encoding_is_found_wherever_it_stands(tmp_path: Path) -> None:
    text = "id,name\n" + "".join(f"{i},{'x' * 100}\n" for i in range(12_000)) + "12000,é\n"
    assert rows_of(text.encode("latin-1"), "id int, name string", tmp_path)[-1] == {"id": 12_000, "name": "é"}
    file = tmp_path / "bad.csv"
    file.write_bytes("id,name\n1,é\n2,b\n3\n".encode("latin-1"))
    with Rejects(tmp_path / "aside.csv") as rejects:
        shape = FileShape(encoding="utf-8")
        chunks = list(read_file(str(file), WriteFormat.CSV, table_of("id int, name string"), shape, rejects))
    assert [r["id"] for c in chunks for r in c.rows.to_pylist()] == [2]
    with (tmp_path / "aside.csv").open() as source:
        assert [r["line"] for r in csv.DictReader(source)] == ["2", "4"]
