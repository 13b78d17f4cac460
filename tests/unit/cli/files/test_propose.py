# SPDX-License-Identifier: Apache-2.0
"""A table that is proposed for a file takes every row of it, and loses nothing."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.cli import app
from lakeward.cli.files.filerows import FileShape
from lakeward.cli.files.propose import Proposal, find_delimiter, is_header, propose
from lakeward.cli.files.rowfiles import format_of, read_file
from lakeward.errors import InvalidRequest
from lakeward.model import Schema


def proposed(file: Path, content: bytes) -> Proposal:
    file.write_bytes(content)
    proposal = propose(str(file), format_of(file.name))
    shape = FileShape(cells=proposal.cells)
    chunks = read_file(str(file), format_of(file.name), Schema(columns=proposal.columns), shape)
    assert sum(len(c) for c in chunks) == proposal.rows  # each row is taken as it is
    return proposal


def test_doubles_as_programs_write_them_are_doubles(tmp_path: Path) -> None:
    numbers = [0.1 + 0.2, 1 / 7, -1e-300 / 3, 2.0**60, 1.5]
    proposal = proposed(
        tmp_path / "a.csv", "\n".join(["id,x", *(f"{i},{x!r}" for i, x in enumerate(numbers))]).encode()
    )
    assert proposal.sql == "`id` BIGINT, `x` DOUBLE"
    proposal = proposed(tmp_path / "b.csv", b"id,x\n1,0.30000000000000005\n2,1.5\n")
    assert proposal.sql == "`id` BIGINT, `x` STRING"
    assert proposal.notes[-1] == "`x` is text: some of its numbers have 18 digits, more than a double holds"


def test_awkward_csv(tmp_path: Path) -> None:
    lines = ["Order No;Name;PLZ;Sum;Paid;At;Zoned;Day;Odd day;Digits"]
    for i in range(3):
        cells = f'{i};"Mü\n;""{i}""";0106{i};{i}.5;true;2026-01-01 00:00:0{i};2026-01-01T00:00:0{i}Z;2026-01-0{i + 1}'
        lines.append(f"{cells};{i + 1}.2.2026;12345678901234567890{i}")
    proposal = proposed(tmp_path / "a.csv", "\r\n".join([*lines, ";;;;;;;;;"]).encode("latin-1")[:-11])
    assert proposal.sql == (
        "`Order No` BIGINT, `Name` STRING, `PLZ` STRING, `Sum` DOUBLE, `Paid` BOOLEAN, `At` TIMESTAMP(6), "
        "`Zoned` TIMESTAMP_LTZ(6), `Day` DATE, `Odd day` DATE, `Digits` STRING"
    )
    assert proposal.key == "Order No"
    assert proposal.notes[-1] == "`Digits` is text: some of its numbers have 21 digits, more than a double holds"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a,order_id\n1,1\n1,2\n", "order_id"),
        ("a,orderId\n1,1\n1,2\n", "orderId"),
        ("paid,a\n1,1\n1,2\n", None),  # no key by its name, and not unique
        ("a,paid\n1,1\n1,2\n", None),  # unique by chance: neither first nor named like a key
        ("name,n\nx,1\ny,1\n", "name"),
        ("id,n\n1,1\n1,2\n", None),
        ("id,n\n1,1\n,2\n", None),  # a row without it
        ("id,n\n1,1\n", None),  # one row shows nothing
        ("1,x\n2,y\n", "c1"),
    ],
)
def test_a_key_has_a_value_of_its_own_in_each_row(text: str, key: str | None, tmp_path: Path) -> None:
    assert proposed(tmp_path / "a.csv", text.encode()).key == key


def test_other_files_bring_their_types(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "d": [date(2026, 1, 1), None], "tags": [["a"], []]})
    pq.write_table(table, tmp_path / "written.parquet")
    parquet = proposed(tmp_path / "a.parquet", (tmp_path / "written.parquet").read_bytes())
    assert (parquet.sql, parquet.key) == ("`id` BIGINT, `d` DATE, `tags` ARRAY<STRING>", "id")
    rows = [{"id": i, "who": {"name": "x"}, "n": 1.5} for i in range(3)]
    spelled = "`id` BIGINT, `who` ROW<`name` STRING>, `n` DOUBLE"
    assert proposed(tmp_path / "a.json", json.dumps(rows).encode()).sql == spelled
    assert proposed(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)).encode()).sql == spelled


def test_delimiters_and_headers() -> None:
    assert find_delimiter("a;b\n1,5;2\n3,5;4\n") == (";", ["a", "b"])
    assert find_delimiter("a\tb, c\n1\t2\n") == ("\t", ["a", "b, c"])
    assert [is_header(r) for r in (["a", "b"], ["a", ""], ["a", "a"], ["a", "-1"])] == [True, False, False, False]


def test_files_that_propose_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    (tmp_path / "a.parquet").write_text("no")
    (tmp_path / "c.csv").write_text('id,name\n1,a\n2,"b\n3,c\n')
    for name, words in (
        ("a.csv", "it is empty"),
        ("c.csv", "line 3, column name: a quote that is never closed"),
        ("a.parquet", "cannot be read as parquet"),
        ("b.csv", "no such file"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            propose(str(tmp_path / name), format_of(name))


@pytest.mark.parametrize(
    ("said", "key"), [((), "id"), (("--primary-key", "name"), "name"), (("--primary-key", ""), "")]
)
def test_a_key_that_is_said_wins_also_none(
    said: tuple[str, ...], key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,name\n1,a\n2,b\n")
    assert app.run(["table", "create", "db.t", "--from", str(rows), "--json", *said]) == 0
    assert json.loads(capsys.readouterr().out)["primary_key"] == key
