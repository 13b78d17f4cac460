# SPDX-License-Identifier: Apache-2.0
"""What `doctor --fluss` says of the lake tables of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeward.cli.app import run
from lakeward.cli.doctor.diagnosis import Level
from lakeward.cli.doctor.fluss import examine_cluster
from lakeward.hot.fluss.clusterview import BEHIND, CURRENT, LATE, REFUSED, UNREADABLE, TableView
from lakeward.model import TablePath
from lakeward.protocol.facts import LiveFacts
from lakeward.server.live.consolenote import SILENT_MS, ConsoleNote, console_folder, load_note, save_note
from lakeward.spi import LakeTotals

AT = "127.0.0.1:9123"


def view(state: str, **more: Any) -> TableView:
    return TableView(path="shop.orders", state=state, freshness_ms=10_000, **more)


def totals(data_files: int, delete_files: int) -> LakeTotals:
    return LakeTotals(data_files=data_files, delete_files=delete_files, rows=1, bytes=1, snapshots=1)


def test_a_table_in_time_has_no_finding() -> None:
    assert examine_cluster([view(CURRENT, totals=totals(9, 7)), view(BEHIND, waiting=3, lag_ms=5_000)], AT) == []


@pytest.mark.parametrize(
    ("table", "check", "level", "mend"),
    [
        (view(LATE, lag_ms=90_000, waiting=3), "freshness", Level.WRONG, f"lakeward tier --fluss {AT}"),
        (
            view(LATE, lag_ms=90_000, waiting=3, last_commit_at_ms=1, job="a"),
            "freshness",
            Level.WRONG,
            f"lakeward tier-now shop.orders --fluss {AT}",
        ),
        (view(UNREADABLE, reason="the lake is away"), "lake", Level.WRONG, "once the lake answers"),
        (view(REFUSED, reason="the log is indexed"), "supported", Level.SOON, "Fluss's Flink job"),
        (
            view(CURRENT, totals=totals(5, 8)),
            "deletes",
            Level.SOON,
            f"lakeward maintain shop.orders --fluss {AT} --now",
        ),
    ],
    ids=["never-tiered", "late", "unreadable", "refused", "deletes"],
)
def test_each_finding_names_what_mends_it(table: TableView, check: str, level: Level, mend: str) -> None:
    (finding,) = examine_cluster([table], AT)
    assert (finding.check, finding.level, finding.about) == (check, level, "shop.orders")
    assert mend in finding.mend
    assert table.reason is None or finding.figure == table.reason


def note(**facts: Any) -> ConsoleNote:
    return ConsoleNote(at_ms=1_000_000, keep_ms=60_000, answers=3, facts=LiveFacts(max_bytes=1_000, **facts))


@pytest.mark.parametrize(
    ("console", "about", "figure", "mend"),
    [
        (note(bytes=990), "console", "990 B of 1 kB", "live.max-bytes"),
        (note(bytes=10, overdue=2), "console", "2 live answers are past live.keep", "the console's log"),
        (
            note(bytes=10, cut_short=(TablePath("shop", "orders"),)),
            "shop.orders",
            "5 rows wait",
            f"lakeward tier-now shop.orders --fluss {AT}",
        ),
    ],
    ids=["full", "overdue", "cut-short"],
)
def test_a_console_that_runs(console: ConsoleNote, about: str, figure: str, mend: str) -> None:
    (finding,) = examine_cluster([view(BEHIND, waiting=5)], AT, console, now_ms=1_060_000)
    assert (finding.check, finding.about) == ("live", about)
    assert figure in finding.figure
    assert mend in finding.mend


def test_files_of_a_console_that_no_longer_runs(tmp_path: Path) -> None:
    folder = console_folder(tmp_path, AT)
    folder.mkdir()
    assert load_note(folder) is None
    save_note(folder, note(bytes=10))
    (finding,) = examine_cluster([view(CURRENT)], AT, load_note(folder), now_ms=1_000_001 + SILENT_MS)
    assert "files of 3 live answers (10 B) are in the lake" in finding.figure
    assert finding.mend == f"lakeward console --fluss {AT}"
    assert examine_cluster([view(CURRENT)], AT, load_note(folder), now_ms=1_000_000 + SILENT_MS) == []
    (folder / "live.json").write_text("{")
    assert load_note(folder) is None


def test_a_probe_is_for_a_servers_lakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--fluss", AT, "--probe"]) == 2
    assert "not together with --fluss" in capsys.readouterr().err
