# SPDX-License-Identifier: Apache-2.0
"""Where a statement of the shell ends."""

from __future__ import annotations

import pytest

from lakeward.cli.sql.sqlshell import split_statements


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("select 1;", ["select 1"], ""),
        ("select 1; select 2;\n", ["select 1", "select 2"], "\n"),
        ("select 1\n", [], "select 1\n"),
        ("select ';' , 'it''s;'; x", ["select ';' , 'it''s;'"], " x"),
        ('select "a;b"; ', ['select "a;b"'], " "),
        ("select 1 -- no; end\n;", ["select 1 -- no; end"], ""),
        (";;", [], ""),
    ],
)
def test_statements_end_with_a_semicolon_that_stands_alone(text: str, statements: list[str], rest: str) -> None:
    assert split_statements(text) == (statements, rest)
