# SPDX-License-Identifier: Apache-2.0
"""Values as DuckDB's own text of them."""

from __future__ import annotations

import json

import duckdb
import pyarrow as pa
import pytest

from lakeward.cli.files.rowprint import ReadFormat, write_rows
from lakeward.cli.files.sqltext import spell_value


@pytest.mark.parametrize(
    "value",
    [
        "INTERVAL '14 months 3 days 04:05:06.25'",
        "INTERVAL '-2 days'",
        "INTERVAL '-1 month -00:00:01'",
        "INTERVAL '1 day'",
        "INTERVAL '0 days'",
        "TIMESTAMP '2026-01-31 12:00:00'",
        "TIMESTAMP '2026-01-31 12:00:00.5'",
        "DATE '2026-01-31'",
        "TIME '12:30:00'",
        "1234567",
        "true",
        "12.50::DECIMAL(10,2)",
        "NULL",
    ],
)
def test_values_are_spelled_as_sql_does(value: str) -> None:
    with duckdb.connect() as connection:
        relation = connection.sql(f"SELECT {value} AS v, CAST({value} AS VARCHAR) AS text")
        batch = relation.to_arrow_table()
    text = batch.column("text")[0].as_py() or "NULL"
    assert spell_value(batch.column("v")[0].as_py()) == {"2026-01-31 12:00:00.5": f"{text}00000"}.get(text, text)


def test_intervals_and_nulls_print_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect() as connection:
        table = connection.sql("SELECT INTERVAL '1 day 2 hours' AS i, NULL::INT AS n, '' AS s").to_arrow_table()
    for kind in (ReadFormat.TABLE, ReadFormat.JSON):
        write_rows(table.schema, table.to_batches(), kind)
    shown, spelled = capsys.readouterr().out.splitlines()[1:]
    assert shown.split() == ["1", "day", "02:00:00", "NULL"]
    assert json.loads(spelled) == {"i": "1 day 02:00:00", "n": None, "s": ""}


def test_a_duration_of_arrow_prints(capsys: pytest.CaptureFixture[str]) -> None:
    batch = pa.record_batch({"d": pa.array([90_061_000_000, None], pa.duration("us"))})
    write_rows(batch.schema, [batch], ReadFormat.TABLE)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()[1:]] == ["1 day 01:01:01", "NULL"]
