# SPDX-License-Identifier: Apache-2.0
"""What a stop of any kind leaves, and what the next start makes of it."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lakeward.errors import BucketStopped, BucketUnavailable, DiskFull, FaultInjected, OutOfSequence
from lakeward.hot.embedded.log.active import MarkFile, find_mark, mark_path
from lakeward.hot.embedded.log.segment import find_listed, list_bases, list_path, log_path, remove_files, writers_path
from lakeward.hot.embedded.log.stored import LocalBytes, iter_batches
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import TableInfo
from lakeward_testing.faults import Faults
from tests.unit.hot.embedded.yard import B0, Yard, read, rows, table_folder

Named = Callable[[Path], Path]


def log_folder(root: Path, table: TableInfo) -> Path:
    return table_folder(root, table) / "p0" / "b0" / "log"


def cut_bytes(store: EmbeddedStore, table: TableInfo) -> int:
    found = store.hot_table(table).find_bucket(B0)
    assert found is not None
    return found.log.cut_bytes


def reopen(yard: Yard, store: EmbeddedStore, folder: Path) -> EmbeddedStore:
    return yard.open(folder)


@pytest.fixture
def table(yard: Yard, store: EmbeddedStore) -> TableInfo:
    table = yard.table(properties={"table.log.fsync": "never"})
    store.create_table(table)
    return table


def test_a_tail_torn_at_any_byte_is_cut_at_the_last_whole_batch(
    yard: Yard, store: EmbeddedStore, table: TableInfo
) -> None:
    store.append(table, B0, rows(1, 2))
    store.freeze(table)
    path = log_path(log_folder(yard.folder, table), 0)
    good = path.stat().st_size
    store.append(table, B0, rows(3, text="a tail that was never forced to disk"))
    full = path.stat().st_size
    crashed = yard.crash(store)
    for size in (*range(good, full, 17), full - 1):
        folder = crashed.with_name(f"torn-{size}")
        shutil.copytree(crashed, folder)
        with log_path(log_folder(folder, table), 0).open("r+b") as file:
            file.truncate(size)
        again = reopen(yard, store, folder)
        assert (cut_bytes(again, table), read(again, table)) == (size - good, [(0, 1), (1, 2)])
        assert again.append(table, B0, rows(9)).start == 2
        assert read(again, table) == [(0, 1), (1, 2), (2, 9)]


@pytest.mark.parametrize("fill", [b"\x00" * 400, b"\xff" * 400, bytes(range(256)) * 2])
def test_garbage_behind_the_end_is_cut(yard: Yard, store: EmbeddedStore, table: TableInfo, fill: bytes) -> None:
    store.append(table, B0, rows(1))
    store.freeze(table)
    crashed = yard.crash(store)
    with log_path(log_folder(crashed, table), 0).open("ab") as file:
        file.write(fill)
    again = reopen(yard, store, crashed)
    assert (cut_bytes(again, table), read(again, table)) == (len(fill), [(0, 1)])


def test_rounds_never_saw_the_unsynced_tail_that_a_power_cut_takes(
    yard: Yard, store: EmbeddedStore, table: TableInfo
) -> None:
    store.append(table, B0, rows(1, 2))
    seen = store.freeze(table)[B0].end
    synced = log_path(log_folder(yard.folder, table), 0).stat().st_size
    store.append(table, B0, rows(3, 4))
    assert store.bounds(table)[B0].end == seen
    crashed = yard.crash(store)
    with log_path(log_folder(crashed, table), 0).open("r+b") as file:
        file.truncate(synced)
    again = reopen(yard, store, crashed)
    assert again.freeze(table)[B0].end == seen
    assert read(again, table) == [(0, 1), (1, 2)]


def test_acknowledged_rows_survive_a_kill(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(name="kept")
    store.create_table(table)
    for n in range(50):
        store.append(table, B0, rows(n, n))
    again = reopen(yard, store, yard.crash(store))
    assert read(again, table) == [(o, o // 2) for o in range(100)]
    assert again.append(table, B0, rows(0)).start == 100


@pytest.mark.parametrize("mark", ["kept", "none"])
def test_damage_in_the_middle_stops_the_bucket_and_leaves_the_file_alone(
    yard: Yard, store: EmbeddedStore, table: TableInfo, mark: str
) -> None:
    other = yard.table(name="other")
    store.create_table(other)
    store.append(other, B0, rows(1))
    for n in range(3):
        store.append(table, B0, rows(n))
    store.freeze(table)
    crashed = yard.crash(store)
    path = log_path(log_folder(crashed, table), 0)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    path.write_bytes(damaged)
    if mark == "none":
        mark_path(path.parent).unlink()
        list_path(path.parent).unlink()
    again = reopen(yard, store, crashed)
    with pytest.raises(BucketStopped, match="corrupt"):
        again.append(table, B0, rows(9))
    with pytest.raises(BucketStopped, match="left alone"):
        again.read_log(table, B0, 0, 1)
    assert list(again.stopped_buckets(table)) == [B0]
    assert path.read_bytes() == damaged
    assert again.append(other, B0, rows(2)).start == 1, "the other table works on"


def test_damage_in_the_last_batch_is_no_torn_tail_once_it_was_on_disk(
    yard: Yard, store: EmbeddedStore, table: TableInfo
) -> None:
    store.append(table, B0, rows(1))
    store.freeze(table)
    crashed = yard.crash(store)
    path = log_path(log_folder(crashed, table), 0)
    damaged = bytearray(path.read_bytes())
    damaged[-9] ^= 1
    path.write_bytes(damaged)
    again = reopen(yard, store, crashed)
    with pytest.raises(BucketStopped):
        again.append(table, B0, rows(2))
    assert path.read_bytes() == damaged


def _rolled(yard: Yard, store: EmbeddedStore, table: TableInfo, segments: int = 3) -> int:
    """Appends until there are so many segments, all on disk; returns the end."""
    while len(list_bases(log_folder(yard.folder, table))) < segments:
        end = store.append(table, B0, rows(1)).stop
    store.freeze(table)
    return end


def _batch_size(path: Path) -> int:
    source = LocalBytes(path)
    try:
        return next(iter_batches(source, 0, path.stat().st_size)).header.size
    finally:
        source.close()


@pytest.mark.parametrize("stop", ["killed", "orderly"])
@pytest.mark.parametrize(
    "loss",
    [
        "a batch of the last",
        "the last",
        "a batch of a closed one",
        "a closed one",
        "a closed one and its index",
        "the oldest and its index",
        "all of them",
    ],
)
def test_bytes_that_were_on_disk_and_are_gone_are_damage_and_no_offset_is_given_twice(
    yard: Yard, store: EmbeddedStore, table: TableInfo, loss: str, stop: str
) -> None:
    end = _rolled(yard, store, table)
    if stop == "orderly":
        store.close()
    folder = log_folder(yard.crash(store), table)
    bases = list_bases(folder)
    named = {"a batch of the last": bases[-1:], "the last": bases[-1:], "the oldest and its index": bases[:1]}
    hit = bases if loss == "all of them" else named.get(loss, bases[1:2])
    for base in hit:
        path = log_path(folder, base)
        if loss.startswith("a batch"):
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size - _batch_size(path))
        elif loss.endswith("index"):
            remove_files(folder, base)
        else:
            path.unlink()
    again = reopen(yard, store, folder.parents[4])
    assert list(again.stopped_buckets(table)) == [B0]
    with pytest.raises(BucketStopped, match=rf"{log_path(folder, hit[-1]).name if len(hit) == 1 else 'log'}.*on disk"):
        again.append(table, B0, rows(9))
    assert end > 0


@pytest.mark.parametrize("closed", [1, 3])
def test_a_skip_cut_off_before_its_mark_is_no_damage(
    yard: Yard, store: EmbeddedStore, table: TableInfo, closed: int
) -> None:
    """The empty segment that the mark names is gone then, and a later one is there."""
    end = _rolled(yard, store, table, closed)
    found = store.hot_table(table).find_bucket(B0)
    assert found is not None
    found.log.roll()
    found.log.sync()
    with Faults() as faults:
        faults.arm("hotlog.before-fsync")
        with pytest.raises(FaultInjected):
            found.log.skip_to(end + 10)
        again = reopen(yard, store, yard.crash(store))
    assert again.append(table, B0, rows(5)).start == end + 10
    assert len(read(again, table)) == end + 1


def test_damage_found_by_a_reader_is_named(yard: Yard, store: EmbeddedStore, table: TableInfo) -> None:
    for n in range(60):
        store.append(table, B0, rows(n))
    store.close()
    path = log_path(log_folder(yard.folder, table), 0)
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    again = yard.open()
    with pytest.raises(Exception, match=rf"{path.name}.*corrupt"):
        list(again.read_log(table, B0, 0, 1))
    assert read(again, table, start=50, stop=60) == [(o, o) for o in range(50, 60)]


def test_an_unsynced_roll_is_cut_across_segments(yard: Yard, store: EmbeddedStore, table: TableInfo) -> None:
    """A power cut may lose the end of one segment and keep the next one: both were never acknowledged as durable."""
    store.append(table, B0, rows(0))
    store.freeze(table)
    n = 0
    while len(list_bases(log_folder(yard.folder, table))) < 3:
        n += 1
        store.append(table, B0, rows(n))
    crashed = yard.crash(store)
    first = log_path(log_folder(crashed, table), 0)
    with first.open("r+b") as file:
        file.truncate(first.stat().st_size - 5)
    again = reopen(yard, store, crashed)
    assert list_bases(log_folder(crashed, table)) == [0]
    found = read(again, table)
    assert found == [(o, o) for o in range(len(found))]
    assert 1 < len(found) < n
    assert again.append(table, B0, rows(7)).start == len(found)


def test_an_orderly_stop_is_trusted_and_a_stale_note_of_it_is_not(
    yard: Yard, store: EmbeddedStore, table: TableInfo
) -> None:
    store.append(table, B0, rows(1), WriterSequence(4, 0))
    store.close()
    note = log_folder(yard.folder, table) / "clean"
    kept = note.read_bytes()
    store = yard.open()
    assert not note.exists()
    assert store.append(table, B0, rows(1), WriterSequence(4, 0)).duplicate
    store.append(table, B0, rows(2), WriterSequence(4, 1))
    crashed = yard.crash(store)
    (log_folder(crashed, table) / "clean").write_bytes(kept)
    again = reopen(yard, store, crashed)
    assert read(again, table) == [(0, 1), (1, 2)]
    assert again.append(table, B0, rows(2), WriterSequence(4, 1)).duplicate


@pytest.mark.parametrize("snapshots", ["kept", "lost", "damaged"])
def test_writers_are_remembered_across_kills_and_segments(yard: Yard, store: EmbeddedStore, snapshots: str) -> None:
    table = yard.table(name="w")
    store.create_table(table)
    first = store.append(table, B0, rows(0), WriterSequence(2**63 - 1, 0))
    for n in range(60):
        store.append(table, B0, rows(n), WriterSequence(7, n))
    empty = store.append(table, B0, rows(), WriterSequence(7, 60))
    crashed = yard.crash(store)
    for base in list_bases(log_folder(crashed, table)):
        path = writers_path(log_folder(crashed, table), base)
        if snapshots != "kept" and path.exists():
            path.unlink() if snapshots == "lost" else path.write_bytes(b"broken")
    again = reopen(yard, store, crashed)
    retried = again.append(table, B0, rows(), WriterSequence(7, 60))
    assert (retried.start, retried.stop, retried.duplicate) == (empty.start, empty.stop, True)
    assert again.append(table, B0, rows(0), WriterSequence(2**63 - 1, 0)).start == first.start
    with pytest.raises(OutOfSequence) as gap:
        again.append(table, B0, rows(1), WriterSequence(7, 62))
    assert (gap.value.got, gap.value.expected) == (62, 61)
    assert len(read(again, table)) == 61


@pytest.mark.parametrize(
    "point", ["hotlog.before-write", "hotlog.after-write", "hotlog.before-fsync", "hotlog.after-fsync", "hotlog.roll"]
)
def test_a_put_cut_off_at_any_step_lands_once_when_it_is_retried(yard: Yard, store: EmbeddedStore, point: str) -> None:
    table = yard.table(name="steps")
    store.create_table(table)
    for n in range(8):
        store.append(table, B0, rows(n, text="x" * 300), WriterSequence(1, n))
    with Faults() as faults:
        faults.arm(point)
        n = 8
        while True:
            try:
                store.append(table, B0, rows(n, text="x" * 300), WriterSequence(1, n))
            except FaultInjected:
                break
            n += 1
        crashed = yard.crash(store)
    again = reopen(yard, store, crashed)
    again.append(table, B0, rows(n, text="x" * 300), WriterSequence(1, n))
    assert [i for _, i in read(again, table)] == list(range(n + 1))


def test_a_bucket_whose_files_cannot_be_opened_stops_alone(yard: Yard, store: EmbeddedStore, table: TableInfo) -> None:
    other = yard.table(name="other")
    store.create_table(other)
    store.append(table, B0, rows(1))
    store.append(other, B0, rows(1))
    store.close()
    path = log_path(log_folder(yard.folder, table), 0)
    path.unlink()
    path.symlink_to(path.name)
    again = yard.open()
    with pytest.raises(BucketStopped, match="symbolic links"):
        again.append(table, B0, rows(2))
    assert again.append(other, B0, rows(2)).start == 1


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("healed_by", ["a put", "upkeep"])
def test_an_error_that_passes_stops_no_bucket(
    yard: Yard, store: EmbeddedStore, table: TableInfo, code: int, healed_by: str
) -> None:
    """At its first opening, and at a start."""
    with Faults() as faults:
        faults.arm("hotlog.open", error=lambda: OSError(code, "it will pass"), times=None)
        with pytest.raises(DiskFull if code == errno.ENOSPC else BucketUnavailable) as caught:
            store.append(table, B0, rows(1))
        assert caught.value.retryable
        assert (list(store.stopped_buckets(table)), store.sizes()[0].stopped_buckets) == ([B0], 1)
    if healed_by == "upkeep":
        store.upkeep.tend_files()
        assert store.stopped_buckets(table) == {}
    assert store.append(table, B0, rows(1)).start == 0
    store.close()
    with Faults() as faults:
        faults.arm("hotlog.open", error=lambda: OSError(code, "it will pass"))
        again = yard.open()
    assert list(again.stopped_buckets(table)) == [B0]
    assert again.append(table, B0, rows(2)).start == 1


def test_segments_that_retention_took_are_not_missed(yard: Yard, store: EmbeddedStore, table: TableInfo) -> None:
    end = _rolled(yard, store, table, 4)
    found = store.hot_table(table).find_bucket(B0)
    assert found is not None
    bases = list_bases(log_folder(yard.folder, table))
    found.log.drop_local(bases[:2])
    found.log.roll()
    found.log.skip_to(end + 10)
    again = reopen(yard, store, yard.crash(store))
    assert (again.stopped_buckets(table), again.append(table, B0, rows(9)).start) == ({}, end + 10)


def test_a_log_folder_of_an_earlier_version_gets_its_list(yard: Yard, store: EmbeddedStore, table: TableInfo) -> None:
    """Its mark says nothing of a list, or there is none yet."""
    _rolled(yard, store, table)
    folder = log_folder(yard.crash(store), table)
    bases, mark = list_bases(folder), find_mark(folder)
    assert mark is not None
    for is_there in (True, False):
        list_path(folder).unlink()
        mark_path(folder).unlink()
        if is_there:
            with closing(MarkFile(folder)) as file:
                file.write(mark, is_listed=False)
        again = reopen(yard, store, folder.parents[4])
        assert (again.stopped_buckets(table), find_listed(folder)) == ({}, bases)
        again.close()


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("damaged", [None, b"broken"])
@pytest.mark.parametrize(("of", "beside"), [(mark_path, list_path), (list_path, mark_path)])
def test_a_lost_mark_or_list_is_noticed(
    yard: Yard, store: EmbeddedStore, table: TableInfo, of: Named, beside: Named, damaged: bytes | None, segments: int
) -> None:
    store.append(table, B0, rows(1))
    end = _rolled(yard, store, table, segments) if segments > 1 else store.freeze(table)[B0].end
    folder = log_folder(yard.crash(store), table)
    lost = of(folder)
    lost.unlink()
    if damaged is not None:
        lost.write_bytes(damaged)
    again = reopen(yard, store, folder.parents[4])
    if (segments, damaged, of) == (1, b"broken", list_path):
        assert again.stopped_buckets(table) == {}, "a power cut may have left it, and one segment needs no list"
        return
    with pytest.raises(BucketStopped, match=rf"{lost.name}.*missing or damaged.*remove {beside(folder).name}"):
        again.append(table, B0, rows(9))
    again.close()
    lost.unlink(missing_ok=True)
    beside(folder).unlink()
    assert reopen(yard, store, folder.parents[4]).append(table, B0, rows(9)).start == end


def test_what_a_power_cut_leaves_of_a_new_log_opens(yard: Yard, store: EmbeddedStore, table: TableInfo) -> None:
    """Names are on disk, and what is in the files is not."""
    store.append(table, B0, rows(1))
    folder = log_folder(yard.crash(store), table)
    for path in (mark_path(folder), list_path(folder)):
        path.write_bytes(b"")
    assert read(reopen(yard, store, folder.parents[4]), table) == [(0, 1)]
