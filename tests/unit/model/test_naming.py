# SPDX-License-Identifier: Apache-2.0
"""Errors that do not know their table are told whose they are, at every place where somebody knows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lakeward.client import Client
from lakeward.errors import InvalidInput, InvalidRequest, InvalidTable, LakeTampered
from lakeward.lake.iceberg.datafile.puffin import decode_vector
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.model import Schema, of_table

SOURCE = Path(__file__).parents[3] / "src"


def test_an_error_without_a_name_gets_one_and_keeps_its_kind() -> None:
    with pytest.raises(InvalidTable, match=r"table db\.t") as wrong, of_table("db.t"):
        Schema(columns=())
    assert wrong.value.field == "columns"
    with pytest.raises(LakeTampered, match=r"table db\.t, .*v\.puffin"), lake_errors("db.t", "read"):
        decode_vector(b"", "v.puffin")


@pytest.mark.parametrize("columns", ["", "id bigintt", {"id": "nothing"}, 7], ids=repr)
def test_columns_that_are_none_are_told_with_their_table(columns: Any) -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(InvalidInput, match=r"^table db\.t: .*\S: \S"):
        client.create_table("db.t", columns)


def test_an_error_with_a_name_keeps_it() -> None:
    of_request = InvalidRequest(what="table db.t, column a", reason="r")
    with pytest.raises(InvalidRequest, match=r"^table db\.t, column a: r$"), of_table("db.t"):
        raise of_request
    known = InvalidTable(table="db.a", field="column", value="x", reason="r")
    with pytest.raises(InvalidTable, match=r"db\.a"), of_table("db.b"):
        raise known


def test_nobody_spells_the_missing_name_by_hand() -> None:
    """A place that does is one that nobody names."""
    spelled = [p for p in SOURCE.rglob("*.py") if re.search(r'table="\?"', p.read_text())]
    assert spelled == []
