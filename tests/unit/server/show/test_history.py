# SPDX-License-Identifier: Apache-2.0
"""Samples: they survive a restart, gaps and damage of their file included, and are thinned by their peaks."""

from __future__ import annotations

from pathlib import Path

from lakeward.model.ids import Epoch, TableId
from lakeward.model.state import TableState
from lakeward.model.table import TablePath
from lakeward.protocol.views import TableStatus
from lakeward.server.show.history import HISTORY_FILE, KEPT, History


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
