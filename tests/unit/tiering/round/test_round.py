# SPDX-License-Identifier: Apache-2.0
"""Whole rounds on the memory lake, without Spark: what reaches the lake, the ledger and the coordinator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeward.errors import SchemaChanged, ServerUnavailable
from lakeward.model import Bucket, IntentState, LedgerKind
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from tests.kit.memoryforeign import MemoryForeignEngine
from tests.unit.tiering.world import BUCKET, World, make_table

PK = ("id BIGINT NOT NULL", "name STRING")


def rows(start: int, stop: int, name: str = "n") -> list[dict[str, object]]:
    return [{"id": i, "name": f"{name}{i}"} for i in range(start, stop)]


def done(end: object) -> TableFinished:
    assert isinstance(end, TableFinished), end
    return end


def failed(end: object) -> TableFailed:
    assert isinstance(end, TableFailed), end
    return end


def test_log_rows_reach_the_lake_once_over_many_rounds() -> None:
    world = World()
    for n in range(3):
        world.store.append(rows(10 * n, 10 * n + 10))
        assert done(world.run()).result is not None
        assert world.lake_rows() == world.store.rows()
    assert [len(r.ranges) for r in world.coordinator.rounds] == [1, 1, 1]
    assert world.coordinator.offsets[BUCKET] == 30


def test_no_new_offsets_make_no_snapshot() -> None:
    world = World()
    world.store.append(rows(0, 5))
    world.run()
    before = world.snapshots()
    end = done(world.run())
    assert end.result is None
    assert not end.force_finished
    assert world.snapshots() == before
    assert len(world.coordinator.rounds) == 1


def test_a_round_tells_how_big_the_lake_is_after_it() -> None:
    """Not how much this round wrote: Fluss shows it as the size of the table."""
    world = World()
    told = []
    for n in range(2):
        world.store.append(rows(10 * n, 10 * n + 10))
        result = done(world.run()).result
        assert result is not None
        assert (result.lake_bytes, result.lake_rows) == (world.reader.totals().bytes, len(world.store.rows()))
        told.append(result)
    assert told[0].lake_bytes == told[0].bytes_written
    assert told[1].lake_bytes == told[0].bytes_written + told[1].bytes_written


def test_a_big_range_is_cut_and_commits_as_one_snapshot() -> None:
    world = World(target_bytes=100, small=0)
    for n in range(10):
        world.store.append(rows(10 * n, 10 * n + 10))
    done(world.run())
    assert world.lake_rows() == world.store.rows()
    assert world.snapshots() == 1
    assert world.reader.totals().data_files == 10


def test_pk_updates_and_deletes_over_many_rounds() -> None:
    world = World(make_table(*PK, key=("id",)))
    world.store.upsert(rows(0, 20))
    done(world.run())
    for n in range(4):
        world.store.upsert(rows(n, n + 8, f"u{n}-"))
        world.store.delete([{"id": n}, {"id": 15 - n}])
        world.store.upsert(rows(n, n + 2, f"again{n}-"))
        done(world.run())
        assert world.lake_rows() == world.store.rows()


def test_pk_range_cut_into_sub_splits_never_parts_an_update() -> None:
    world = World(make_table(*PK, key=("id",)), target_bytes=50, small=0)
    world.store.upsert(rows(0, 10))
    done(world.run())
    for n in range(5):
        world.store.upsert(rows(0, 10, f"u{n}-"))
    done(world.run())
    assert world.lake_rows() == world.store.rows()
    assert world.snapshots() == 2


def test_first_round_of_a_pk_table_reads_a_snapshot_then_the_log_behind_it() -> None:
    world = World(make_table(*PK, key=("id",)))
    world.store.upsert(rows(0, 30))
    world.store.upsert(rows(0, 10, "new"))
    grown = []

    def grow() -> None:
        grown.append(1)
        if len(grown) == 2:
            world.store.upsert(rows(5, 12, "late"))

    world.store.on_freeze = grow
    done(world.run())
    assert world.lake_rows() == world.store.rows()
    assert world.store.held == {}
    assert world.snapshots() == 1


def test_pk_log_that_no_longer_reaches_back_starts_from_a_snapshot() -> None:
    world = World(make_table(*PK, key=("id",)))
    world.store.upsert(rows(0, 10))
    done(world.run())
    world.store.upsert(rows(5, 12, "u"))
    world.store.delete([{"id": 1}])
    world.store.cut_log(20)
    done(world.run())
    assert world.lake_rows() == world.store.rows()
    world.store.upsert(rows(0, 3, "after"))
    done(world.run())
    assert world.lake_rows() == world.store.rows()


def test_log_table_whose_log_starts_above_the_committed_offset_stops_with_the_choices() -> None:
    world = World()
    world.store.append(rows(0, 5))
    done(world.run())
    world.store.append(rows(5, 20))
    world.store.cut_log(8)
    end = failed(world.run())
    assert end.error["code"] == "log-too-short"
    assert "resync" in end.error["message"]
    assert not end.given_back


def test_partitions_come_and_go() -> None:
    world = World(make_table("id BIGINT", "day STRING NOT NULL", partition=("day",)))
    monday, tuesday = Bucket("mon", 0), Bucket("tue", 0)
    world.store.append([{"id": 1, "day": "mon"}], monday)
    done(world.run())
    world.store.append([{"id": 2, "day": "tue"}], tuesday)
    done(world.run())
    gone = world.store.buckets.pop(monday)
    world.store.append([{"id": 3, "day": "tue"}], tuesday)
    done(world.run())
    world.store.buckets[monday] = gone
    assert world.lake_rows() == world.store.rows()


def test_column_added_between_rounds_and_while_one_is_planned() -> None:
    world = World()
    world.store.append(rows(0, 5))
    done(world.run())

    def grow() -> None:
        world.store.on_freeze = lambda: None
        world.lake.catalog().add_columns(world.store.table, [])
        world.store.append(rows(5, 8))

    world.store.on_freeze = grow
    done(world.run())
    assert world.lake_rows() == world.store.rows()


def test_a_split_with_a_newer_schema_is_sent_again_under_it() -> None:
    world = World()
    world.store.append(rows(0, 5))
    newer = [SchemaChanged(table="db.t", offset=0, batch_schema=2, planned_schema=1)]

    def once(_bucket: Bucket, _offset: int) -> None:
        if newer:
            raise newer.pop()

    world.store.before_batch = once
    assert done(world.run()).result is not None
    assert world.lake_rows() == world.store.rows()


def test_a_server_that_goes_away_in_the_middle_of_a_split_costs_no_row() -> None:
    world = World()
    for n in range(4):
        world.store.append(rows(5 * n, 5 * n + 5))
    away = [10, 10, 15]

    def lose(_bucket: Bucket, offset: int) -> None:
        if away and offset == away[0]:
            away.pop(0)
            raise ServerUnavailable(address="here", reason="restarted")

    world.store.before_batch = lose
    done(world.run())
    assert not away
    assert world.lake_rows() == world.store.rows()


def test_a_server_that_goes_away_while_a_round_is_planned_costs_a_pause() -> None:
    world = World()
    world.store.append(rows(0, 5))
    away = [1, 1]

    def lose() -> None:
        if away:
            away.pop()
            raise ServerUnavailable(address="here", reason="restarting")

    world.store.on_freeze = lose
    assert done(world.run()).result is not None
    assert not away


def test_an_error_of_a_split_fails_the_round_with_its_type_and_commits_what_others_finished() -> None:
    world = World(make_table(buckets=2))
    other = Bucket("", 1)
    world.store.append(rows(0, 5))
    world.store.append(rows(0, 5), other)

    def break_one(bucket: Bucket, _offset: int) -> None:
        if bucket == other:
            raise ValueError("broken")

    world.store.before_batch = break_one
    end = failed(world.run())
    assert end.error["code"] == "split-failed"
    assert "broken" in end.error["message"]
    assert not end.given_back
    assert dict(world.coordinator.offsets) == {BUCKET: 5}
    world.store.before_batch = lambda _b, _o: None
    done(world.run())
    assert world.lake_rows() == world.store.rows()


def test_a_dropped_and_recreated_table_fails_the_round() -> None:
    world = World()
    world.store.append(rows(0, 5))
    world.store.table = make_table()
    assert failed(world.run()).error["code"] == "table-not-found"


def test_offsets_that_moved_without_a_row_commit_a_snapshot_without_files() -> None:
    world = World(make_table(*PK, key=("id",)))
    world.store.upsert(rows(0, 3))
    done(world.run())
    world.store.upsert(rows(7, 8))
    world.store.delete([{"id": 7}])
    end = done(world.run())
    assert end.result is not None
    assert end.result.rows == 0
    assert world.coordinator.offsets[BUCKET] == 5
    assert world.lake_rows() == world.store.rows()


def test_force_finish_commits_the_prefix_and_the_rest_comes_next() -> None:
    world = World(target_bytes=100, small=0)
    for n in range(10):
        world.store.append(rows(10 * n, 10 * n + 10))
    world.store.before_batch = lambda _b, offset: control.force() if offset == 30 else None
    from lakeward.tiering.work.control import RoundControl

    control = RoundControl()
    end = done(world.run(control=control, limit_ms=0))
    assert end.force_finished
    assert end.caught_up_at_ms is None
    assert world.coordinator.offsets[BUCKET] == 10
    done(world.run())
    assert world.lake_rows() == world.store.rows()


@pytest.mark.parametrize("held_rows", [0, 20_000], ids=["two passes", "in memory"])
def test_a_pk_split_that_comes_due_replaces_only_what_it_saw(held_rows: int) -> None:
    """Rows that only records behind the stop replace are live still."""
    world = World(make_table(*PK, key=("id",)), held_rows=held_rows)
    world.store.upsert(rows(0, 5))
    done(world.run())
    for n in range(4):
        world.store.upsert(rows(0, 5, f"u{n}-"))
    end = done(world.run(limit_ms=0))
    assert end.force_finished
    assert world.coordinator.offsets[BUCKET] == 15
    assert sorted(row[4] for row in world.lake_rows()) == [f"u0-{i}" for i in range(5)]
    done(world.run())
    assert world.lake_rows() == world.store.rows()


def test_a_late_round_works_for_a_while_all_the_same() -> None:
    """Its limit passed before it could write: one batch at a time it would never catch up with small appends."""
    world = World()
    world.shared = replace(world.shared, options=replace(world.options, min_work_s=60))
    for n in range(20):
        world.store.append(rows(n, n + 1))
    end = done(world.run(limit_ms=0))
    assert not end.force_finished
    assert world.coordinator.offsets[BUCKET] == 20


def test_a_lake_that_is_ahead_is_adopted_never_redone() -> None:
    world = World()
    world.store.append(rows(0, 5))

    def crash() -> None:
        raise KeyboardInterrupt

    world.coordinator.before_commit = crash
    with pytest.raises(KeyboardInterrupt):
        world.run()
    world.coordinator.before_commit = lambda: None
    assert world.coordinator.rounds == []
    assert done(world.run()).result is None
    assert [r.kind for r in world.coordinator.rounds] == [LedgerKind.ADOPTED]
    assert world.coordinator.offsets[BUCKET] == 5
    assert world.lake_rows() == world.store.rows()
    assert world.snapshots() == 1


def test_a_coordinator_ahead_of_the_lake_is_an_error() -> None:
    world = World()
    world.store.append(rows(0, 5))
    world.coordinator.offsets = world.coordinator.offsets.overlaid({BUCKET: 3})
    end = failed(world.run())
    assert end.error["code"] == "lake-behind"
    assert world.snapshots() == 0


def test_a_rollback_by_others_stops_the_table() -> None:
    world = World()
    for n in range(2):
        world.store.append(rows(5 * n, 5 * n + 5))
        done(world.run())
    first = world.reader.snapshots()[0].snapshot_id
    MemoryForeignEngine(world.memory, world.table.path).roll_back(first)
    world.store.append(rows(10, 15))
    assert failed(world.run()).error["code"] == "lake-rolled-back"


def test_an_abandoned_round_marks_its_intent_and_deletes_nothing() -> None:
    world = World()
    world.store.append(rows(0, 5))
    world.coordinator.holder = None
    end = failed(world.run())
    assert end.given_back
    assert [i.state for i in world.coordinator.intents.values()] == [IntentState.ABANDONED]
    assert len(list(world.lake.open_maintenance(world.table).list_files())) == 1
    assert world.snapshots() == 0
