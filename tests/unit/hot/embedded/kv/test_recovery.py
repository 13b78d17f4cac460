# SPDX-License-Identifier: Apache-2.0
"""The log is the truth: KV behind, ahead, broken or missing ends up as the log folds."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from lakeward.errors import BucketStopped, KvFailed
from lakeward.hot.embedded.kv.kvoptions import KvOptions
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward_testing.faults import Faults


def row(k: int, v: int = 0) -> dict[str, Any]:
    return {"k": k, "s": f"s{v}", "v": v}


def seen(table: Any) -> dict[int, tuple[int, int]]:
    return {r["k"]: (r["v"], r["__offset"]) for r in table.lookup(*range(20))}


def disk_error() -> Exception:
    return OSError(errno.EIO, "the disk is gone")


def test_kv_that_lost_its_memory_is_rolled_forward(table: Any) -> None:
    table.upsert(*(row(k) for k in range(10)))
    table.upsert(row(3, 5), row(3, 6))
    table.delete(4)
    before, rows = seen(table), table.kv.rows
    table.crash()
    assert (seen(table), table.kv.rows) == (before, rows)
    table.upsert(row(3, 7))
    assert table.records()[-1][:3] == (table.log.end - 1, "+U", 13)


def test_kv_ahead_of_a_log_that_lost_its_tail_is_rebuilt(table: Any) -> None:
    table.upsert(row(1, 1), row(2, 1))
    table.log.sync()
    before = seen(table)
    table.upsert(row(1, 2))
    table.delete(2)
    table.kv._database.flush()
    table.crash(power_cut=True)
    assert table.log.end == 2
    assert seen(table) == before
    table.upsert(row(1, 3))
    assert table.records(2) == [(2, "-U", 0, 1, "s1", 1), (3, "+U", 0, 1, "s3", 3)]


def test_kv_of_a_log_that_lost_its_tail_and_went_on_higher_is_rebuilt(table: Any) -> None:
    table.upsert(row(1, 1), row(2, 1))
    table.log.sync()
    before = seen(table)
    table.upsert(row(1, 2), row(3, 1))
    table.kv._database.flush()
    table.log.lose_unsynced()
    table.log.skip_to(100)
    table.crash()
    assert seen(table) == before
    assert table.upsert(row(1, 9)).start == 100


def test_rebuild_starts_from_a_snapshot_when_the_log_no_longer_reaches_back(table: Any) -> None:
    table.upsert(row(1, 1), row(2, 1))
    snapshot = table.kv.take_snapshot("round")
    table.upsert(row(1, 2))
    assert table.kv.needed_from() == snapshot.log_offset == 2
    table.log.cut_before(2)
    before = seen(table)
    table.kv.close()
    shutil.rmtree(table.folder / "db")
    table.kv = table._open()
    assert seen(table) == before
    assert table.kv.rows == 2


def test_nothing_to_rebuild_from_is_said_in_words(table: Any) -> None:
    table.upsert(row(1, 1))
    table.upsert(row(2, 1))
    assert table.kv.needed_from() == 0
    table.log.cut_before(1)
    table.kv.close()
    shutil.rmtree(table.folder / "db")
    with pytest.raises(BucketStopped, match="begins at 1"):
        table._open().lookup(table.batch([{"k": 1}]))


@pytest.mark.parametrize(
    "spoil", [lambda db: (db / "CURRENT").write_bytes(b"MANIFEST-999999\n"), lambda db: (db / "CURRENT").unlink()]
)
def test_a_broken_database_is_rebuilt(table: Any, spoil: Callable[[Any], None]) -> None:
    table.upsert(row(1, 1), row(2, 1))
    before = seen(table)
    table.kv.close()
    spoil(table.folder / "db")
    table.kv = table._open()
    assert seen(table) == before


def test_a_snapshot_above_the_log_is_dropped(table: Any) -> None:
    table.upsert(row(1, 1))
    table.log.sync()
    table.upsert(row(1, 2))
    snapshot = table.kv.take_snapshot("round")
    assert table.log.synced_end == snapshot.log_offset == 3
    table.kv.close()
    table.log.synced_end = 1
    table.log.lose_unsynced()
    table.kv = table._open()
    assert table.kv.snapshots.all() == []
    assert seen(table) == {1: (1, 0)}


def test_a_crash_in_a_rebuild_is_mended_by_the_next_start(table: Any) -> None:
    table.upsert(row(1, 1))
    table.kv.close()
    shutil.rmtree(table.folder / "db")
    with Faults() as faults:
        faults.arm("kv.rebuild", error=disk_error)
        with pytest.raises(BucketStopped, match="disk is gone"):
            table._open().rows  # noqa: B018 - opens it
    table.kv = table._open()
    assert seen(table) == {1: (1, 0)}


def test_a_failed_kv_write_stops_the_bucket_until_it_agrees_with_the_log(table: Any) -> None:
    table.upsert(row(1, 1), writer=WriterSequence(9, 0))
    with Faults() as faults:
        faults.arm("kv.write", error=disk_error, times=None)
        with pytest.raises(KvFailed):
            table.upsert(row(1, 2), row(2, 2), writer=WriterSequence(9, 1))
        for call, argument in (
            (table.upsert, row(5)),
            (table.delete, 1),
            (table.lookup, 1),
            (table.kv.take_snapshot, "x"),
        ):
            with pytest.raises(BucketStopped, match="disk is gone"):
                call(argument)
    assert table.log.end == 4
    retried = table.upsert(row(1, 2), row(2, 2), writer=WriterSequence(9, 1))
    assert (retried.start, retried.stop, retried.duplicate) == (1, 4, True)
    assert seen(table) == {1: (2, 2), 2: (2, 3)}


def test_a_failed_log_append_leaves_kv_as_it_was(table: Any) -> None:
    table.upsert(row(1, 1))
    append = table.log.append

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    table.log.append = refuse
    with pytest.raises(OSError, match="full"):
        table.upsert(row(1, 2))
    table.log.append = append
    assert seen(table) == {1: (1, 0)}
    table.upsert(row(1, 3))
    assert seen(table) == {1: (3, 2)}


def test_a_failed_before_image_read_stores_nothing(table: Any) -> None:
    table.upsert(row(1, 1))
    with Faults() as faults:
        faults.arm("kv.get", error=disk_error)
        with pytest.raises(KvFailed):
            table.upsert(row(1, 2))
    assert table.log.end == 1
    assert seen(table) == {1: (1, 0)}


def test_an_orderly_close_leaves_nothing_to_roll_forward(table: Any) -> None:
    table.upsert(*(row(k) for k in range(5)))
    table.kv.close()
    read, asked = table.log.read, []

    def listen(start: int, stop: int, *, unsynced: bool) -> Any:
        asked.append((start, stop))
        return read(start, stop, unsynced=unsynced)

    table.log.read = listen
    table.kv = table._open()
    assert table.kv.rows == 5
    assert asked == [(4, 5), (5, 5)]  # is it this log's KV, and what is new: nothing
    assert len(seen(table)) == 5
    table.kv.close()
    with pytest.raises(BucketStopped, match="closed"):
        table.upsert(row(1))


def rot(table: Any, start: int) -> None:
    for file in (table.folder / "db").glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[start : start + 100] = bytes(b ^ 0xFF for b in data[start : start + 100])
        file.write_bytes(data)


def test_a_table_file_that_rots_is_built_anew_from_the_log(table: Any) -> None:
    table.kv.upsert(table.batch([row(k) for k in range(5000)]))
    table.kv.take_snapshot("round")
    before = seen(table)
    table.kv.close()
    rot(table, 20)
    table.kv = table._open()
    assert seen(table) == before
    table.kv.close()
    rot(table, 50_000)
    table.kv = table._open()
    with pytest.raises(KvFailed, match="Corruption"):
        table.lookup(*range(5000))
    assert len(table.lookup(*range(5000))) == 5000
    assert seen(table) == before


def test_a_rebuild_passes_over_a_snapshot_that_rots(table: Any) -> None:
    table.upsert(row(1, 1))
    table.kv.take_snapshot("first")
    table.upsert(row(2, 1))
    table.kv.take_snapshot("second")
    table.kv.close()
    shutil.rmtree(table.folder / "db")
    newest = table.folder / "snapshots" / table.kv.snapshots.newest().snapshot_id
    (newest / "db" / "CURRENT").write_bytes(b"nonsense")
    table.kv = table._open()
    assert seen(table) == {1: (1, 0), 2: (1, 1)}
    assert [s.log_offset for s in table.kv.snapshots.all()] == [1]


def test_flushes_put_the_log_on_disk_first_and_their_failure_costs_no_put(table: Any) -> None:
    table.options = KvOptions(flush_bytes=1)
    table.reopen()
    table.upsert(row(1, 1))
    assert table.log.synced_end == 1
    with Faults() as faults:
        faults.arm("kv.flush", error=disk_error)
        table.upsert(row(1, 2))
    assert seen(table) == {1: (2, 2)}
    table.upsert(row(1, 3))
    assert seen(table) == {1: (3, 4)}


def test_a_log_that_begins_above_zero_is_rebuilt_from_its_first_record(table: Any) -> None:
    """A partition that was dropped and made again."""
    table.lookup(1)
    table.log.start = 50
    table.upsert(row(1, 1))
    table.upsert(row(1, 2), row(2, 2))
    assert seen(table) == {1: (2, 52), 2: (2, 53)}
    table.kv.close()
    shutil.rmtree(table.folder / "db")
    table.kv = table._open()
    assert seen(table) == {1: (2, 52), 2: (2, 53)}
