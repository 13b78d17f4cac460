# SPDX-License-Identifier: Apache-2.0
"""What a killed job had is known to the one that comes back under its name, as long as Fluss waits for it."""

from __future__ import annotations

from pathlib import Path

from lakeward.hot.fluss.handout.epochs import join_epoch
from lakeward.hot.fluss.handout.heldnote import OLDEST_MS, TOUCH_S, Held, HeldNote
from lakeward.model import JobName, TableId
from lakeward_testing.clock import ManualClock

JOB = JobName("mine")
HELD: list[Held] = [(TableId("1"), join_epoch(2, 5)), (TableId("2"), join_epoch(2, 1))]


def note(folder: Path, clock: ManualClock, cluster: str = "host:1") -> HeldNote:
    return HeldNote(cluster, clock, folder)


def left(folder: Path, clock: ManualClock, job: JobName = JOB, cluster: str = "host:1") -> list[Held]:
    return sorted(note(folder, clock, cluster).find_left(job))


def test_the_next_of_the_name_on_this_cluster_finds_what_was_held(tmp_path: Path) -> None:
    clock = ManualClock()
    killed = note(tmp_path, clock)
    killed.keep(JOB, HELD)
    assert left(tmp_path, clock) == []  # who never asked for a table is no job
    assert killed.find_left(JOB) == []
    killed.keep(JOB, HELD)
    assert left(tmp_path, clock) == sorted(HELD)
    assert left(tmp_path, clock, JobName("other")) == left(tmp_path, clock, cluster="host:2") == []
    killed.keep(JOB, [])
    assert left(tmp_path, clock) == []


def test_a_note_is_kept_young_while_its_job_beats_and_an_old_one_is_not_believed(tmp_path: Path) -> None:
    clock = ManualClock()
    held = note(tmp_path, clock)
    held.find_left(JOB)
    held.keep(JOB, HELD)
    clock.advance(OLDEST_MS / 1_000 + 1)
    assert left(tmp_path, clock) == []
    held.keep(JOB, HELD)
    clock.advance(TOUCH_S)
    assert left(tmp_path, clock) == sorted(HELD)


def test_a_broken_note_says_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    held = note(tmp_path, clock)
    held.find_left(JOB)
    held.keep(JOB, HELD)
    (file,) = (tmp_path / "fluss").iterdir()
    file.write_text('{"held": 3')
    assert left(tmp_path, clock) == []


def test_what_was_left_is_told_of_until_fluss_has_heard_it(tmp_path: Path) -> None:
    clock = ManualClock()
    killed = note(tmp_path, clock)
    assert killed.find_left(JOB) == []
    killed.keep(JOB, HELD)
    again = note(tmp_path, clock)
    assert sorted(again.find_left(JOB)) == sorted(again.find_left(JOB)) == sorted(HELD)
    again.keep(JOB, [])  # Fluss was away: the note is still the other one's
    assert left(tmp_path, clock) == sorted(HELD)
    again.given_back()
    assert again.find_left(JOB) == []
    again.keep(JOB, HELD[:1])
    assert left(tmp_path, clock) == HELD[:1]
