# SPDX-License-Identifier: Apache-2.0
"""Tiles: each turns red for its own reason and says what to do."""

from __future__ import annotations

from dataclasses import replace

from lakeward.model import Epoch, InstanceId, JobName, SideName, TableId, TablePath, TableState
from lakeward.model.side import COMPACT
from lakeward.protocol.views import JobStatus, TableStatus, WorkStatus
from lakeward.server.feed.history import KEPT, History
from lakeward.server.show.tiles import Overview, Tile, make_tiles

TABLE = TableStatus(
    path=TablePath("db", "t"),
    table_id=TableId("t"),
    state=TableState.SCHEDULED,
    epoch=Epoch(1),
    freshness_ms=10_000,
    last_duration_ms=2_000,
)
JOB = JobStatus(
    name=JobName("j"), instance=InstanceId("i"), pool="default", slots=2, live=True, last_beat_at_ms=0, expected=True
)
WELL = Overview(tables=[TABLE], jobs=[JOB])


def red(seen: Overview) -> dict[str, Tile]:
    return {t.key: t for t in make_tiles(seen) if not t.ok}


def test_all_is_well() -> None:
    assert red(WELL) == {}
    assert [t.figure for t in make_tiles(WELL)] == ["every table is fresh", "0 →", "0 B →", "0 →", "1 / 1"]


def test_a_late_table_a_failing_one_a_long_round_and_a_silent_lake_each_turn_the_first_tile_red() -> None:
    late = replace(TABLE, lag_ms=12_000)
    sick = replace(TABLE, state=TableState.QUARANTINED, reason="no room")
    slow = replace(TABLE, last_duration_ms=6_000)
    for table, words in ((late, "explain"), (sick, "no room"), (slow, "too long")):
        tile = red(replace(WELL, tables=[table]))["rounds"]
        assert words in tile.advice
        assert tile.page == "#/table/db.t"
    assert "refused" in red(replace(WELL, lake_error="connection refused"))["rounds"].advice


def test_a_table_that_does_not_reach_its_lake_turns_the_first_tile_red_whatever_its_state() -> None:
    for state in (TableState.DISABLED, TableState.PAUSED, TableState.FAILED):
        tile = red(replace(WELL, tables=[TABLE, replace(TABLE, state=state, blocked="resync it")]))["rounds"]
        assert (tile.figure, tile.advice) == ("1", "db.t: resync it.")
    assert red(replace(WELL, tables=[replace(TABLE, state=TableState.DISABLED)])) == {}, "made without a lake"


def test_the_figure_of_a_red_tile_is_the_one_that_is_red_and_the_worst_table_is_named() -> None:
    late = replace(TABLE, path=TablePath("db", "late"), lag_ms=12_000)
    later = replace(TABLE, path=TablePath("db", "later"), lag_ms=42_000)
    sick = replace(TABLE, path=TablePath("db", "sick"), state=TableState.QUARANTINED, failures_in_a_row=5)
    shown = []
    for tables in ([TABLE], [TABLE, late, later], [TABLE, later, sick, replace(sick, path=TablePath("db", "x"))]):
        tile = make_tiles(replace(WELL, tables=tables))[0]
        shown.append((tile.name, tile.figure, tile.about))
    assert shown == [
        ("Freshness", "every table is fresh", "db.t"),
        ("Late tables", "2 of 3 late", "db.later"),
        ("Tables that fail", "2", "db.sick"),
    ]


def test_stopped_buckets_and_a_thread_that_stands_still_turn_the_first_tile_red() -> None:
    stopped = replace(TABLE, stopped_buckets=2, reason="bucket 0 takes no writes: corrupt")
    tile = red(replace(WELL, tables=[TABLE, stopped]))["rounds"]
    assert ("2 buckets" in tile.advice, "corrupt" in tile.advice, tile.page) == (True, True, "#/table/db.t")
    assert "lakeward-store" in red(replace(WELL, still=["lakeward-store"]))["rounds"].advice


def test_queue_remote_log_and_files() -> None:
    assert "queue" in red(replace(WELL, queue=[(0, 3), (1, 5)]))
    assert "queue" not in red(replace(WELL, queue=[(0, 9), (1, 5)]))
    slow = replace(TABLE, side=SideName("finance"), lag_ms=9_000)
    advice = red(replace(WELL, tables=[TABLE, slow], overdue_bytes=5_000_000))["remote-log"].advice
    assert "past its TTL" in advice
    assert "db.t waits for lake finance the longest" in advice
    assert "compaction" in red(replace(WELL, tables=[replace(TABLE, lake_files=6_000)]))["files"].advice


def test_the_tile_of_files_says_what_is_left_to_merge_and_whether_it_falls() -> None:
    debt = WorkStatus(kind=COMPACT, epoch=Epoch(1), debt_files=40, debt_rows=1_200)
    seen = replace(WELL, tables=[replace(TABLE, work=(debt,)), TABLE], debt=[(0, 90), (1, 40)])
    (tile,) = [t for t in make_tiles(seen) if t.key == "files"]
    assert ", 40 to merge with 1,200 deleted rows ↓" in tile.figure
    assert all("to merge" not in t.figure for t in make_tiles(WELL))


def test_jobs_that_are_missing_are_named() -> None:
    assert "j" in red(replace(WELL, jobs=[replace(JOB, live=False)]))["jobs"].advice
    assert "west" in red(replace(WELL, missing_jobs=["west"]))["jobs"].advice
    assert "lakeward tier" in red(replace(WELL, jobs=[]))["jobs"].advice
    assert "--pool big" in red(replace(WELL, tables=[replace(TABLE, served=False, pool="big")]))["jobs"].advice


def test_a_job_that_is_not_heard_of_is_late_then_red_and_the_queue_does_not_blame_slots() -> None:
    late = {t.key: t for t in make_tiles(replace(WELL, jobs=[replace(JOB, beats_missed=3)]))}["jobs"]
    assert (late.ok, late.late, "missed 3" in late.advice, late.figure) == (True, True, True, "1 / 1")
    killed = red(replace(WELL, jobs=[replace(JOB, beats_missed=10)], queue=[(0, 3), (1, 5)]))
    assert (killed["jobs"].figure, "killed or hangs" in killed["jobs"].advice) == ("0 / 1", True)
    assert "no job is heard of" in killed["queue"].advice


def test_an_empty_server_waits_for_nobody() -> None:
    tile = make_tiles(Overview(tables=[], jobs=[]))[-1]
    assert (tile.figure, tile.ok, tile.rule) == ("0 / 0", True, "no table waits for one yet")


def test_history_keeps_one_hour_and_forgets_dropped_tables() -> None:
    history = History()
    for n in range(KEPT + 5):
        history.take(n * 10_000, [replace(TABLE, lag_ms=n)], queue=n)
    assert len(history.lag("db.t")) == len(history.figure("queue")) == KEPT
    assert history.lag("db.t")[-1] == (10_000 * (KEPT + 4), KEPT + 4)
    history.take(10_000 * (KEPT + 5), [], queue=0)
    assert history.lag("db.t") == []


def test_a_thinned_curve_keeps_its_peaks() -> None:
    history = History()
    for n in range(200):
        history.take(n * 10_000, [replace(TABLE, lag_ms=99_000 if n == 77 else n)])
    assert len(history.lag("db.t")) == 200
    thin = history.lag("db.t", points=50)
    assert len(thin) == 50
    assert (770_000, 99_000) in thin
    assert history.lag("no.such", points=50) == []


def test_the_first_tile_says_in_words_which_table_is_closest_to_its_limit() -> None:
    sensor = replace(TABLE, path=TablePath("feed", "sensor"), freshness_ms=15_000, lag_ms=8_000)
    tile = make_tiles(replace(WELL, tables=[TABLE, sensor]))[0]
    assert (tile.figure, tile.about, tile.detail, tile.late) == (
        "every table is fresh", "feed.sensor", "is closest: 8 s of 15 s", False,
    )  # fmt: skip
    assert make_tiles(replace(WELL, tables=[]))[0].figure == "no tables yet"


def test_the_first_tile_calls_no_table_fresh_that_is_paused_or_that_no_job_serves() -> None:
    paused = replace(TABLE, path=TablePath("db", "p"), state=TableState.PAUSED, waiting_rows=3)
    alone = replace(TABLE, path=TablePath("db", "a"), served=False, waiting_rows=3)
    for other, words in ((paused, "`lakeward resume db.p`"), (alone, "no live job serves its pool")):
        tile = make_tiles(replace(WELL, tables=[TABLE, other]))[0]
        assert (tile.figure, tile.ok, tile.late) == ("1 of 2 fresh", True, True)
        assert words in tile.advice
