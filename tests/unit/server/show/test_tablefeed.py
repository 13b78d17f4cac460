# SPDX-License-Identifier: Apache-2.0
"""A page is sent what changed since it asked last, and a thousand tables fit into a small answer."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

from lakeward.model import Epoch, TableId, TablePath, TableState
from lakeward.protocol.views import TableStatus
from lakeward.server.feed.tablefeed import TableFeed

ONE = TableStatus(
    path=TablePath.parse("db.a"), table_id=TableId("a"), state=TableState.SCHEDULED, epoch=Epoch(1), freshness_ms=1_000
)
TWO = replace(ONE, path=TablePath.parse("db.b"))


def anybody(_: TablePath) -> bool:
    return True


def test_what_changed_is_sent_and_what_went_is_named() -> None:
    feed = TableFeed()
    feed.take([ONE, TWO], 1_000)
    first = feed.since("", anybody)
    assert (first.whole, [t["path"] for t in first.tables]) == (True, ["db.a", "db.b"])
    assert feed.since(first.version, anybody).tables == []
    feed.take([replace(ONE, lag_ms=100), TWO], 2_000)
    second = feed.since(first.version, anybody)
    assert [(t["path"], t["waits_since_ms"]) for t in second.tables] == [("db.a", 1_900)]
    feed.take([replace(ONE, lag_ms=600), TWO], 2_500)
    assert feed.since(second.version, anybody).tables == [], "time alone is no change"
    feed.take([TWO], 3_000)
    third = feed.since(second.version, anybody)
    assert (third.tables, third.gone, third.whole) == ([], ["db.a/default"], False)
    feed.take([ONE, TWO], 3_500)
    assert (feed.since(third.version, anybody).gone, feed.since(first.version, anybody).gone) == ([], [])


def test_another_life_of_the_server_and_other_tokens() -> None:
    feed, other = TableFeed(), TableFeed()
    for each in (feed, other):
        each.take([ONE, TWO], 1_000)
    version = feed.since("", anybody).version
    assert (other.since(version, anybody).whole, len(other.since(version, anybody).tables)) == (True, 2)
    assert [t["path"] for t in feed.since("", lambda path: path == TWO.path).tables] == ["db.b"]


def test_a_thousand_busy_tables_take_less_than_20_kilobytes_a_tick() -> None:
    feed = TableFeed()
    tables = [
        replace(ONE, path=TablePath.parse(f"db.t{n:04}"), lag_ms=n * 7, lake_rows=n * 991, lake_bytes=n * 70_001)
        for n in range(1_003)
    ]
    feed.take(tables, 10_000_000)
    first = feed.since("", anybody)
    moved = [replace(t, lake_rows=n, state=TableState.TIERING) if n % 5 == 0 else t for n, t in enumerate(tables)]
    feed.take(moved, 10_000_000)
    tick = feed.since(first.version, anybody)
    assert len(tick.tables) == 201
    assert len(gzip.compress(json.dumps(vars(tick)).encode(), 6)) < 20_000
