# SPDX-License-Identifier: Apache-2.0
"""Queries that nobody meant to work are refused in words, and do not reach a log."""

from __future__ import annotations

import logging

import pytest

from lakeward.errors import InvalidRequest
from lakeward.read.sql import parse_query


@pytest.mark.parametrize(
    "query",
    [
        "select 'secret",
        'select "secret',
        "select $$secret",
        "/* secret",
        "select " + "(" * 5_000,
        "select " + "x." * 5_000 + "secret",
        "select " + "not " * 20_000 + "1",
        "select '" + "x" * 100_000 + "'",
        "pragma secret",
        "call secret()",
        "",
    ],
)
def test_it_is_refused(query: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(InvalidRequest):
        parse_query(query)
    assert "secret" not in caplog.text
