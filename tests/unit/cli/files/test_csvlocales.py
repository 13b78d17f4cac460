# SPDX-License-Identifier: Apache-2.0
"""CSV files of other countries: no number, date or word changes its meaning, and a report names what fixes the file."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeward.cli import app
from lakeward.cli.files.cellformat import LOCALES, CellFormat, DateOrder, cell_format, find_locale
from lakeward.cli.files.filerows import FileShape, Rejects
from lakeward.cli.files.propose import Proposal, propose
from lakeward.cli.files.rowfiles import WriteFormat, read_file
from lakeward.client.columns import parse_columns
from lakeward.errors import InvalidRequest
from lakeward.model import Schema

GERMAN = (
    "Nr;Betrag;Menge;Datum;Gebucht;Aktiv;Rabatt\r\n"
    "1;1.681,50;1.000;31.12.2025;31.12.2025 14:05;ja;-\r\n"
    "2;12,5;12;1.2.2026;01.02.2026 00:00:01;nein;0,5\r\n"
    "3;-0,25;;;;;\r\n"
)
GERMAN_COLUMNS = "`Nr` bigint, `Betrag` double, `Menge` bigint, `Datum` date, `Gebucht` timestamp(6), `Aktiv` boolean, "
GERMAN_ROWS = [
    (1, 1681.5, 1000, date(2025, 12, 31), datetime(2025, 12, 31, 14, 5), True, None),
    (2, 12.5, 12, date(2026, 2, 1), datetime(2026, 2, 1, 0, 0, 1), False, 0.5),
    (3, -0.25, None, None, None, None, None),
]


def rows_of(file: Path, columns: str, rejects: Rejects | None = None, **cells: Any) -> list[tuple[Any, ...]]:
    shape = FileShape(cells=cell_format(**cells))
    chunks = read_file(str(file), WriteFormat.CSV, Schema(columns=parse_columns(columns)), shape, rejects)
    return [tuple(row.values()) for chunk in chunks for row in chunk.rows.to_pylist()]


def csv_of(folder: Path, text: str | bytes) -> Path:
    file = folder / "rows.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def proposed(file: Path, **cells: Any) -> Proposal:
    return propose(str(file), WriteFormat.CSV, FileShape(cells=cell_format(**cells)))


def test_a_german_file_is_read_as_it_is_meant(tmp_path: Path) -> None:
    file = csv_of(tmp_path, GERMAN)
    columns = GERMAN_COLUMNS + "`Rabatt` double"
    assert rows_of(file, columns, locale="de", nulls=["-"]) == GERMAN_ROWS
    separate: dict[str, Any] = {"decimal": ",", "thousands": ".", "date_order": DateOrder.DAY}
    words: dict[str, Any] = {"true_words": ["Ja"], "false_words": ["nein"], "nulls": ["-"]}
    assert rows_of(file, columns, **separate, **words) == GERMAN_ROWS


def test_a_table_is_proposed_for_it_with_the_options_to_write_it(tmp_path: Path) -> None:
    file = csv_of(tmp_path, GERMAN)
    proposal = proposed(file)
    columns = GERMAN_COLUMNS.replace("bigint", "BIGINT").replace("double", "DOUBLE").replace("date", "DATE")
    assert proposal.sql == columns.replace("timestamp", "TIMESTAMP").replace("boolean", "BOOLEAN") + "`Rabatt` DOUBLE"
    assert proposal.cells.command_line == "--locale de --null -"
    shape = FileShape(cells=proposal.cells)
    chunks = read_file(str(file), WriteFormat.CSV, Schema(columns=proposal.columns), shape)
    assert [tuple(row.values()) for chunk in chunks for row in chunk.rows.to_pylist()] == GERMAN_ROWS


def test_a_point_never_becomes_a_decimal_point_where_others_use_commas(tmp_path: Path) -> None:
    for text in ("a;b\n1.681;1,5\n", "b;a\n1,5;2\n3;1.681\n", "a;b\n1.681;2\n12,5;3\n"):
        file = csv_of(tmp_path, text)
        for columns in ("a double, b double", "a decimal(10,3), b decimal(10,3)", "a double, b string"):
            with pytest.raises(InvalidRequest) as refused:
                rows_of(file, columns)
            assert "--decimal ," in refused.value.message or "--locale de" in refused.value.message
        with Rejects(tmp_path / "aside.csv") as aside:
            taken = rows_of(file, "a double, b double", aside)
        assert 1.681 not in {value for row in taken for value in row}
        columns_of = {c.name: str(c.type) for c in proposed(file).columns}
        assert columns_of["a"] in ("BIGINT", "DOUBLE")
        written = rows_of(file, "a double, b double", decimal=",", thousands=".")
        assert any(1681.0 in row for row in written)


def test_a_point_alone_stays_a_decimal_point(tmp_path: Path) -> None:
    file = csv_of(tmp_path, "a,b\n1.681,x\n2.5,y\n")
    assert rows_of(file, "a double, b string") == [(1.681, "x"), (2.5, "y")]
    assert proposed(file).sql == "`a` DOUBLE, `b` STRING"
    assert rows_of(csv_of(tmp_path, "a;b\n1.681;2\n"), "a double, b bigint") == [(1.681, 2)]


def test_columns_that_disagree_are_text_and_say_why(tmp_path: Path) -> None:
    proposal = proposed(csv_of(tmp_path, "lat;sum;both\n52.5200;1,5\n48.1;2,5\n".replace(";both", "")))
    assert proposal.sql == "`lat` DOUBLE, `sum` STRING"
    assert "with a decimal comma and with a point; --decimal says which" in proposal.notes[0]
    unclear = proposed(csv_of(tmp_path, "a;b\n1,234;x\n5,678;y\n"))
    assert unclear.sql == "`a` STRING, `b` STRING"
    assert "--thousands , or --decimal ," in unclear.notes[0]
    american = proposed(csv_of(tmp_path, 'a\td\n"1,234.50"\t12/31/2025\n"5,678"\t1/2/2026\n'))
    assert (american.sql, american.cells.command_line) == ("`a` DECIMAL(18, 2), `d` DATE", "--locale us")


LONG = "9" * 30


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1.681,50", "-0,25", "12", "-"], "DECIMAL(18, 2)"),
        (["1.234.567.890.123,45"], "DECIMAL(18, 2)"),
        ([f"{LONG},10", "0,20"], "DECIMAL(38, 2)"),
        (["12,5", "1,25"], "DOUBLE"),
        (["1,25", "0,125"], "DOUBLE"),
        (["1,25", "nan"], "DOUBLE"),
        (["1", "12"], "BIGINT"),
    ],
)
def test_numbers_with_two_digits_after_the_sign_are_exact(tmp_path: Path, cells: list[str], kind: str) -> None:
    file = csv_of(tmp_path, "a;b\n" + "".join(f"{cell};0,5\n" for cell in cells))
    proposal = proposed(file)
    assert str(proposal.columns[0].type) == kind
    shape = FileShape(cells=proposal.cells)
    chunks = read_file(str(file), WriteFormat.CSV, Schema(columns=proposal.columns), shape)
    amounts = [row["a"] for chunk in chunks for row in chunk.rows.to_pylist()]
    if kind.startswith("DECIMAL"):
        plain = [cell.replace(".", "").replace(",", ".") for cell in cells]
        assert amounts == [None if cell == "-" else Decimal(cell) for cell in plain]


def test_words_for_null_are_taken_where_no_text_is_lost(tmp_path: Path) -> None:
    proposal = proposed(csv_of(tmp_path, "n,name\n1,Ann\nNA,Ben\n3,Cleo\n"))
    assert (proposal.sql, proposal.cells.nulls) == ("`n` BIGINT, `name` STRING", ("NA",))
    kept = proposed(csv_of(tmp_path, "n,country\n1,DE\nNA,FR\n3,NA\n"))
    assert (kept.sql, kept.cells.nulls) == ("`n` STRING, `country` STRING", ())
    assert "--null 'NA' makes it NULL, also in column country" in kept.notes[0]
    compass = proposed(csv_of(tmp_path, "n,heading\n1,N\n2,S\n"))
    assert compass.sql == "`n` BIGINT, `heading` STRING"


def test_all_problems_of_a_file_are_one_report(tmp_path: Path) -> None:
    lines = [f"{n};{n},5;{n % 28 + 1}.1.2026;{'ja' if n % 2 else 'nein'};x" for n in range(1, 31)]
    file = csv_of(tmp_path, "\n".join(["id;sum;day;active;note", *lines, "31;1;2026-01-01;true;y;z", "zz;;;;"]))
    with pytest.raises(InvalidRequest) as refused:
        rows_of(file, "id bigint, sum decimal(10,2), day date, active boolean, note string")
    report = refused.value.message.splitlines()
    assert "92 problems of 5 kinds" in report[0]
    said = "\n".join(report)
    assert (
        "column sum: numbers with a decimal comma ('1,5', '2,5', '3,5'), lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 "
        "and 20 more; pass --decimal ," in said
    )
    assert "column day: dates with the day first ('2.1.2026'" in said
    assert "pass --date-order day" in said
    assert "column active: words for yes and no ('ja', 'nein')" in said
    assert "pass --true ja --false nein" in said
    assert "6 cells where 5 are expected ('31;1;2026-01-01;true;y;z'), line 32" in said
    assert "column id: no whole number that fits BIGINT ('zz'), line 33" in said
    assert report[-1] == "  together: --locale de"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b"a,b\r\n1,x\n2,y\r3,z\r\n", [(1, "x"), (2, "y"), (3, "z")]),
        (b'a,b\n1,"x\r\n""y"\r\n2,5" pipe\n3,z', [(1, 'x\r\n"y'), (2, '5" pipe'), (3, "z")]),
    ],
)
def test_line_ends_may_be_mixed(text: bytes, rows: list[tuple[Any, ...]], tmp_path: Path) -> None:
    file = csv_of(tmp_path, text)
    assert rows_of(file, "a bigint, b string") == rows
    assert proposed(file).rows == len(rows)
    with pytest.raises(InvalidRequest, match="line 6, column a: 'q' is no whole number"):
        rows_of(csv_of(tmp_path, b'a,b\r\n1,"x\ny"\r2,y\n\nq,z\r\n'), "a bigint, b string")


@pytest.mark.parametrize("name", LOCALES)
def test_a_locale_has_no_word_or_sign_with_two_meanings(name: str) -> None:
    locale = find_locale(f"{name}_XX.UTF-8")
    assert locale.command_line == f"--locale {name}" or LOCALES[locale.options[1]].decimal == locale.decimal


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=5, deadline=None)
@given(numbers=st.lists(st.decimals(-(10**7), 10**7, places=2), min_size=1, max_size=20))
@pytest.mark.parametrize("name", ["de", "us", "ch", "fr", "pl"])
def test_numbers_of_a_locale_come_back(name: str, numbers: list[Decimal], tmp_path: Path) -> None:
    locale = LOCALES[name]
    to_locale = str.maketrans({",": locale.thousands[0], ".": locale.decimal})
    cells = [f"{number:,.2f}".translate(to_locale) for number in numbers]
    file = csv_of(tmp_path, "id|n\n" + "".join(f"{i}|{cell}\n" for i, cell in enumerate(cells)))
    assert [n for _, n in rows_of(file, "id bigint, n decimal(12,2)", locale=name)] == numbers


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"locale": "dd"}, "--locale dd: known are de"),
        ({"decimal": ";"}, "it is a point or a comma"),
        ({"decimal": ".", "thousands": "."}, "the decimal sign is . already"),
        ({"true_words": ["no"]}, "no cannot mean both"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        cell_format(**options)


def test_thousands_alone_imply_the_other_decimal_sign() -> None:
    assert cell_format(thousands=".") == CellFormat(decimal=",", thousands=".", is_known=True)


def test_what_is_proposed_keeps_the_partitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = csv_of(tmp_path, "id;day;sum;at\n1;a;1,5;2026-11-18\n2;b;2,5;2026-11-19\n")
    options = ("--partition-by", "day", "--freshness", "1 min", "--property", "table.log.ttl=1d")
    assert app.run(["table", "create", "db.t", "--from", str(file), *options]) == 0
    said = capsys.readouterr().err.splitlines()[-1]
    assert "--primary-key id,day --partition-by day --freshness '1 min' --property table.log.ttl=1d" in said
    assert app.run(["table", "create", "db.t", "--from", str(file), "--partition-by", "day( at )"]) == 0
    assert "--primary-key id,at --partition-by 'day( at )'" in capsys.readouterr().err.splitlines()[-1]
