# SPDX-License-Identifier: Apache-2.0
"""The remote tier: uploads that a crash cannot half show, reads that do not notice, retention that waits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakeward.errors import BucketStopped, InvalidOptionValue, OffsetOutOfRange, ServerUnavailable
from lakeward.hot.embedded.log.log import BucketLog
from lakeward.hot.embedded.log.remote import RemoteLog, RemoteTier
from lakeward.hot.embedded.log.retention import plan_drop_local, plan_expiry, plan_upload
from lakeward.hot.embedded.log.segment import Segment, list_bases
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import TableInfo
from lakeward_testing.faults import Faults
from tests.unit.hot.embedded.yard import B0, StubGuard, Yard, read, rows

TTL = {"table.log.ttl": "1h", "table.log.fsync": "never"}
EXPECTED = [(o, o) for o in range(80)]


def log_of(store: EmbeddedStore, table: TableInfo) -> BucketLog:
    found = store.hot_table(table).find_bucket(B0)
    assert found is not None
    return found.log


def remote_of(store: EmbeddedStore, table: TableInfo) -> RemoteLog:
    remote = log_of(store, table).files.remote
    assert remote is not None
    return remote


@pytest.fixture
def table(yard: Yard, store: EmbeddedStore) -> TableInfo:
    table = yard.table(properties=TTL)
    store.create_table(table)
    for n in range(80):
        store.append(table, B0, rows(n), WriterSequence(1, n))
    return table


def test_a_reader_under_way_is_told_what_retention_took(store: EmbeddedStore, table: TableInfo) -> None:
    log = log_of(store, table)
    bases, waiting, reading = list_bases(log.place.folder), log.read(0, 80), log.read(0, 80)
    held = next(reading)
    log.drop_local(bases[:3])
    with pytest.raises(OffsetOutOfRange, match=str(bases[3])):
        next(waiting)
    seen = held.num_rows
    with pytest.raises(OffsetOutOfRange, match=str(bases[3])):
        for batch in reading:
            seen += batch.num_rows
    assert seen == bases[1], "the segment that was open is read to its end, and nothing is passed over"


def test_closed_segments_move_and_reads_do_not_notice(yard: Yard, store: EmbeddedStore, table: TableInfo) -> None:
    log, before = log_of(store, table), len(list_bases(log_of(store, table).place.folder))
    assert before >= 4
    reading = store.read_log(table, B0, 0, 80)
    next(reading)
    store.upkeep.upload()
    assert len(list_bases(log.place.folder)) == 2
    assert len(remote_of(store, table).segments) == before - 1
    assert len(list(reading)) == 79, "a reader under way goes on"
    assert read(store, table) == EXPECTED
    assert read(store, table, start=3, stop=60) == EXPECTED[3:60]
    assert store.offset_at(table, B0, 0) == 0
    sizes = store.sizes()[0]
    assert (sizes.local_segments, sizes.remote_segments) == (2, before - 1)
    assert sizes.remote_bytes == sum(s.size for s in remote_of(store, table).segments) > sizes.local_bytes > 0
    store.close()
    again = yard.open()
    assert read(again, table) == EXPECTED
    assert again.append(table, B0, rows(79), WriterSequence(1, 79)).duplicate


def test_uploads_come_in_turns(yard: Yard) -> None:
    yard.settings["remote.log.task-max-upload-segments"] = "1"
    store, table = yard.open(), yard.table(properties=TTL)
    store.create_table(table)
    for n in range(80):
        store.append(table, B0, rows(n))
    for turn in range(1, 4):
        store.upkeep.upload()
        assert len(remote_of(store, table).segments) == turn
    assert read(store, table) == EXPECTED


@pytest.mark.parametrize(
    "point",
    [
        "remote.before-upload",
        "remote.before-manifest",
        "remote.after-manifest",
        "hotlog.after-upload",
        "hotlog.before-drop-local",
    ],
)
def test_a_crash_in_an_upload_shows_nothing_half(
    yard: Yard, store: EmbeddedStore, table: TableInfo, point: str
) -> None:
    with Faults() as faults:
        faults.arm(point, hit=2 if point.startswith("remote") else 1)
        store.upkeep.upload()
        crashed = yard.crash(store)
    assert store.upkeep.failures
    again = yard.open(crashed)
    assert read(again, table) == EXPECTED
    again.upkeep.upload()
    again.upkeep.upload()
    assert read(again, table) == EXPECTED
    assert again.upkeep.failures == {}
    remote = remote_of(again, table)
    bases = [s.base for s in remote.segments]
    assert bases == sorted(set(bases))
    remote.sweep()
    folders = [p for p in (crashed / "remote").rglob("*") if p.is_dir() and len(p.name) == 32]
    assert len(folders) == len(bases), "what the crash left is gone"
    assert read(again, table) == EXPECTED


def test_a_remote_tier_that_does_not_answer_stops_no_writes(yard: Yard, store: EmbeddedStore, table: TableInfo) -> None:
    store.upkeep.upload()
    away = yard.folder.with_name("away")
    shutil.move(yard.folder / "remote", away)
    with pytest.raises(ServerUnavailable):
        list(store.read_log(table, B0, 0, 80))
    assert read(store, table, start=75, stop=80) == EXPECTED[75:80]
    store.append(table, B0, rows(80))
    shutil.move(away, yard.folder / "remote")
    assert read(store, table) == [*EXPECTED, (80, 80)]


@pytest.mark.parametrize("local", [True, False], ids=["before the upload", "after it"])
def test_old_segments_go_once_nobody_needs_them(
    yard: Yard, store: EmbeddedStore, table: TableInfo, guard: StubGuard, local: bool
) -> None:
    if not local:
        store.upkeep.upload()
    segments = log_of(store, table).files.closed_everywhere()
    store.upkeep.expire()
    store.set_retention(guard)
    guard.lake = {B0: segments[2].stop}
    store.upkeep.expire()
    assert store.bounds(table)[B0].start == 0, "none is old"
    yard.clock.advance(3601)
    for lake, held in ((None, None), (segments[0].stop - 1, None), (segments[2].stop, 0)):
        guard.lake = {} if lake is None else {B0: lake}
        guard.held = {} if held is None else {B0: held}
        store.upkeep.expire()
        assert store.bounds(table)[B0].start == 0, (lake, held)
    guard.held = {}
    store.upkeep.expire()
    start = segments[2].stop
    assert store.bounds(table)[B0].start == start
    assert read(store, table) == EXPECTED[start:]
    with pytest.raises(OffsetOutOfRange):
        store.read_log(table, B0, start - 1, 80)
    again = yard.open(yard.crash(store))
    assert (again.bounds(table)[B0].start, read(again, table)) == (start, EXPECTED[start:])
    assert store.upkeep.failures == {}


def test_without_a_lake_time_alone_counts_and_the_end_is_kept(
    yard: Yard, store: EmbeddedStore, table: TableInfo, guard: StubGuard
) -> None:
    guard.enabled = False
    store.set_retention(guard)
    log_of(store, table).roll()
    yard.clock.advance(3601)
    store.upkeep.upload()
    store.upkeep.expire()
    assert (store.bounds(table)[B0].start, store.bounds(table)[B0].end) == (80, 80)
    again = yard.open(yard.crash(store))
    assert again.append(table, B0, rows(1), WriterSequence(1, 80)).start == 80
    assert again.append(table, B0, rows(1), WriterSequence(1, 79)).duplicate


@pytest.mark.parametrize("point", ["remote.after-manifest", "remote.before-remove", "hotlog.before-expire-local"])
def test_a_crash_in_retention_is_made_good(
    yard: Yard, store: EmbeddedStore, table: TableInfo, guard: StubGuard, point: str
) -> None:
    store.upkeep.upload()
    guard.enabled = False
    store.set_retention(guard)
    yard.clock.advance(3601)
    with Faults() as faults:
        faults.arm(point)
        store.upkeep.expire()
        crashed = yard.crash(store)
    again = yard.open(crashed)
    start = again.bounds(table)[B0].start
    assert read(again, table) == EXPECTED[start:]
    again.set_retention(guard)
    again.upkeep.expire()
    assert again.upkeep.failures == {}
    remote = remote_of(again, table)
    remote.sweep()
    assert len([p for p in (crashed / "remote").rglob("*") if p.is_dir() and len(p.name) == 32]) == len(remote.segments)


def test_a_restored_folder_goes_on_above_the_remote_tier(yard: Yard, store: EmbeddedStore, table: TableInfo) -> None:
    """The copy is older than what the remote tier holds: with --restored those rows are there again, without it writes
    stop.
    """
    yard.settings["remote.data.dir"] = str(yard.folder.with_name("tier"))
    store.close()
    store = yard.open()
    store.upkeep.upload()
    old = yard.crash(store)
    for n in range(80, 160):
        store.append(table, B0, rows(n))
    store.upkeep.upload()
    kept = remote_of(store, table).end
    store.close()
    unaware = old.with_name("unaware")
    shutil.copytree(old, unaware)
    yard.restored = True
    again = yard.open(old)
    assert again.append(table, B0, rows(999)).start == kept
    assert read(again, table) == [*((o, o) for o in range(kept)), (kept, 999)]
    again.close()
    yard.restored = False
    blind = yard.open(unaware)
    log_of(blind, table).roll()
    blind.upkeep.upload()
    with pytest.raises(BucketStopped, match="--restored"):
        blind.append(table, B0, rows(1))


def test_uris_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionValue):
        RemoteTier("nosuch://x/y")
    assert RemoteTier(str(tmp_path / "plain")).is_local


def segment(base: int, last_at: int) -> Segment:
    return Segment(base, base + 10, 100, last_at, last_at)


def test_plans_take_only_the_oldest_in_one_piece() -> None:
    kept = [segment(0, 100), segment(10, 200), segment(20, 150), segment(30, 900)]
    assert plan_expiry(kept, 1000, 200, None) == kept[:3]
    assert plan_expiry(kept, 1000, 200, 29) == kept[:2]
    assert plan_expiry(kept, 1000, 200, 0) == []
    assert plan_expiry(kept, 1000, 820, None) == kept[:1]
    assert plan_expiry(kept, 10**9, 0, None) == []
    assert plan_upload(kept, {0}, 29, 5) == [kept[1]]
    assert plan_upload(kept, set(), 100, 2) == kept[:2]
    assert plan_drop_local(kept, {0, 10, 20, 30}, 2, 0, 0) == kept[:3]
    assert plan_drop_local(kept, {0, 20, 30}, 1, 0, 0) == kept[:1]
    assert plan_drop_local(kept, {0, 10, 20, 30}, 9, 1000, 810) == kept[:1]
