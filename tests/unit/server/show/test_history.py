# SPDX-License-Identifier: Apache-2.0
"""Samples: they survive a restart, gaps and damage of their file included, and are thinned by their peaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lakeward.coordinator.state.record import LagDrop
from lakeward.model import DEFAULT_SIDE, Epoch, SideName, TableId, TablePath, TableState
from lakeward.protocol.views import TableStatus
from lakeward.server.feed.history import HISTORY_FILE, KEPT, History


def status(name: str, lag_ms: int) -> TableStatus:
    return TableStatus(
        path=TablePath.parse(name),
        table_id=TableId(name.replace(".", "-")),
        state=TableState.SCHEDULED,
        epoch=Epoch(1),
        freshness_ms=1_000,
        lag_ms=lag_ms,
    )


def take(history: History, *lags: tuple[int, int], start_ms: int = 0) -> None:
    for n, (a, b) in enumerate(lags):
        history.take(start_ms + n * 10_000, [status("db.a", a), status("db.b", b)], queue=n)


def test_a_restart_keeps_the_curves(tmp_path: Path) -> None:
    file = tmp_path / HISTORY_FILE
    take(History(file), (1, 0), (2, 0), (0, 7))
    second = History(file)
    assert second.lag("db.a") == [(0, 1), (10_000, 2), (20_000, 0)]
    assert second.lag("db.b") == [(0, 0), (10_000, 0), (20_000, 7)]
    take(second, (5, 5), start_ms=60_000)
    third = History(file)
    assert third.lag("db.a")[-2:] == [(20_000, 0), (60_000, 5)]
    assert third.figure("queue") == [(0, 0), (10_000, 1), (20_000, 2), (60_000, 0)]


def test_an_hour_is_kept_however_long_it_runs(tmp_path: Path) -> None:
    file = tmp_path / HISTORY_FILE
    history = History(file)
    take(history, *[(n, 0) for n in range(2 * KEPT + 5)])
    lines = sum(len(path.read_text().splitlines()) for path in tmp_path.iterdir())
    assert lines <= 2 * KEPT
    assert History(file).lag("db.a") == history.lag("db.a")
    assert len(history.lag("db.a")) == KEPT


def commits(*drops: tuple[int, int, int], side: SideName = DEFAULT_SIDE) -> list[LagDrop]:
    path = TablePath("db", "a")
    return [LagDrop(path=path, side=side, at_ms=at, before_ms=before, after_ms=after) for at, before, after in drops]


def test_the_curve_shows_what_each_round_brought_and_a_restart_keeps_it(tmp_path: Path) -> None:
    """A table with a freshness of 10 s, sampled every 10 s: samples alone would show one height of the saw tooth."""
    file = tmp_path / HISTORY_FILE
    history, table = History(file), status("db.a", 4_000)
    for n in range(1, 4):
        drops = commits((n * 10_000 - 4_000, 9_500, 300))
        history.take(n * 10_000, [table], drops, queue=0)
    history.take(40_000, [table], queue=0)
    teeth = [(at, lag) for n in range(1, 4) for at, lag in ((n * 10_000 - 4_000, 9_500), (n * 10_000 - 4_000, 300))]
    assert history.lag("db.a") == [*teeth, (40_000, 4_000)]
    assert History(file).lag("db.a") == history.lag("db.a")


def test_commits_between_two_samples_are_one_tooth() -> None:
    history = History()
    drops = commits((1_000, 700, 10), (2_000, 900, 20), (3_000, 600, 0))
    history.take(10_000, [status("db.a", 5)], drops)
    assert history.lag("db.a") == [(2_000, 900), (3_000, 0)]


def test_each_side_has_a_curve_of_its_own() -> None:
    history, far = History(), SideName("far")
    sides = [status("db.a", 5), replace(status("db.a", 7), side=far)]
    history.take(10_000, sides, commits((9_000, 900, 20), side=far))
    assert (history.lag("db.a"), history.lag("db.a/far")) == ([(10_000, 5)], [(9_000, 900), (9_000, 20)])


def test_lines_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / HISTORY_FILE
    take(History(file), (1, 0))
    with file.open("a") as target:
        target.write('[]\n{"at": "x", "lags": {}, "figures": {}}\n{"at": 10000, "lags": {"db.a": 2')
    assert History(file).lag("db.a") == [(0, 1)]


def test_a_peak_is_never_thinned_away() -> None:
    history = History()
    take(history, *[(100 if n == 13 else n % 3, 0) for n in range(90)])
    thinned = history.lag("db.a", points=10)
    assert len(thinned) == 10
    assert (130_000, 100) in thinned
