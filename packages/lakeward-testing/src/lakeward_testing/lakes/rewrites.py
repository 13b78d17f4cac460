# SPDX-License-Identifier: Apache-2.0
"""The lake contract's rewrites: no reader sees another row, and neither rounds nor rewrites lose work to each other."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from lakeward.errors import CommitConflict
from lakeward.model import Column, OffsetMap, StringType, new_round_id
from lakeward.spi import LakeStorage, SupportsKeyDeletes
from lakeward_testing.lakes.removal import removal_of
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, needs, row
from lakeward_testing.lakes.upserts import PK, change_randomly
from lakeward_testing.scripted_log import ScriptedLog


class RewriteContract(LakeSuite):
    def changed(self, lake: LakeStorage, seed: int, rounds: int = 4) -> tuple[ScriptedLog, random.Random]:
        """A PK table after some rounds of changes."""
        log, chance = self.make_log(lake, **PK), random.Random(seed)  # noqa: S311 - a test's script
        for _ in range(rounds):
            change_randomly(log, chance, 20)
            LakeRound.plan(lake, log).run()
        return log, chance

    @needs("rewrites")
    def test_a_rewrite_changes_no_row_of_any_snapshot(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        for number in range(4):
            log.append(B0, row(2 * number), row(2 * number + 1))
            log.append(B1, row(100 + number))
            LakeRound.plan(lake, log).run()
        rewrite = LakeRewrite(lake=lake, table=log.table)
        before, seen = rewrite.base, rewrite.reader.snapshots()
        landed = rewrite.run()
        files = rewrite.reader.files(landed.snapshot_id)
        assert sorted((f.bucket, f.record_count, f.offsets and f.offsets.stop) for f in files) == [
            (B0, 8, 8),
            (B1, 4, 4),
        ]
        assert landed.operation == "replace"
        after = rewrite.reader.load_base()
        assert (after.token, after.offsets, after.fence) == (before.token, before.offsets, before.fence)
        assert (after.generation, after.epoch, after.lake_rows) == (before.generation, before.epoch, 12)
        assert after.head == landed.snapshot_id
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        for shown in seen:
            assert lake_rows(lake, log.table, shown.snapshot_id) == log.expected(shown.offsets or OffsetMap())

    @needs("rewrites", "appends")
    def test_dropped_files_leave_the_head_alone_and_rounds_go_on(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1), row(2))
        log.append(B1, row(3))
        first = LakeRound.plan(lake, log).run()
        rewrite = LakeRewrite(lake=lake, table=log.table, buckets=(B0,), is_dropped=True)
        before, landed = rewrite.base, rewrite.run()
        after = rewrite.reader.load_base()
        assert [f.bucket for f in rewrite.reader.files(landed.snapshot_id)] == [B1]
        assert (after.token, after.offsets, after.fence) == (before.token, before.offsets, before.fence)
        assert (after.head, after.lake_rows, rewrite.reader.totals().rows) == (landed.snapshot_id, 1, 1)
        assert lake_rows(lake, log.table, first.snapshot_id) == log.expected(first.offsets or OffsetMap())
        log.append(B0, row(4))
        LakeRound.plan(lake, log).run()
        gone = log.expected(OffsetMap({B0: 2}))
        assert len(gone) == 2
        assert lake_rows(lake, log.table) == [r for r in log.expected(log.ends()) if r not in gone]

    @needs("rewrites")
    def test_a_rewrite_is_found_by_its_own_id_and_the_round_before_by_its(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        first = LakeRound.plan(lake, log)
        own = first.run()
        rewrite = LakeRewrite(lake=lake, table=log.table).write()
        assert rewrite.committer.find(rewrite.round_id) is None
        landed = rewrite.commit()
        landed_snapshot, before = rewrite.committer.find(rewrite.round_id), rewrite.committer.find(first.round_id)
        assert landed_snapshot is not None
        assert before is not None
        assert (landed_snapshot.snapshot_id, landed_snapshot.rewrite_id) == (landed.snapshot_id, rewrite.round_id)
        assert (before.snapshot_id, before.rewrite_id) == (own.snapshot_id, None)

    @needs("rewrites", "upserts")
    def test_deleted_rows_and_their_deletes_leave(self, lake: LakeStorage) -> None:
        log, _ = self.changed(lake, 1)
        landed = LakeRewrite(lake=lake, table=log.table).run()
        reader = lake.open_reader(log.table)
        expected = log.expected(log.ends())
        assert lake_rows(lake, log.table) == expected
        assert sum(f.record_count for f in reader.files(landed.snapshot_id)) == len(expected)
        assert reader.totals().delete_files == 0

    @needs("rewrites", "upserts", "positions")
    def test_deletes_that_came_since_the_plan_go_along(self, lake: LakeStorage) -> None:
        log, chance = self.changed(lake, 2)
        rewrite = LakeRewrite(lake=lake, table=log.table).write()
        for _ in range(3):
            change_randomly(log, chance, 10)
            LakeRound.plan(lake, log).run()
        prepared = rewrite.prepare()
        assert prepared.carried > 0
        rewrite.commit(prepared)
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        change_randomly(log, chance, 20)
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        LakeRewrite(lake=lake, table=log.table).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        assert lake.open_reader(log.table).totals().delete_files == 0

    @needs("rewrites", "upserts", "equality")
    def test_keys_that_came_since_the_plan_delete_rows_of_the_new_file(self, lake: LakeStorage) -> None:
        log = self.make_log(lake, **PK)
        log.upsert(B0, row(1), row(2), row(3))
        LakeRound.plan(lake, log).run()
        rewrite = LakeRewrite(lake=lake, table=log.table).write()
        start = log.end(B0)
        log.upsert(B0, row(2, "new"))
        log.delete(B0, row(3))
        late = LakeRound.plan(lake, log)
        writer = lake.open_writer(late.task(B0, start, log.end(B0)))
        assert isinstance(writer, SupportsKeyDeletes)
        writer.delete_keys(pa.record_batch({"id": pa.array([2, 3], pa.int64())}))
        new = log.batch(B0, start + 1, start + 2).select(["id", "name", "amount", "__offset", "__timestamp"])
        writer.write(new)
        late.take(B0, log.end(B0), writer.complete())
        late.commit()
        rewrite.commit()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        LakeRewrite(lake=lake, table=log.table).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        assert lake.open_reader(log.table).totals().delete_files == 0

    @needs("rewrites", "upserts")
    def test_a_round_that_meets_a_rewrite_resolves_again(self, lake: LakeStorage) -> None:
        log, chance = self.changed(lake, 3)
        change_randomly(log, chance, 20)
        met = LakeRound.plan(lake, log)
        met.write(B0).write(B1)
        early = met.prepare()
        LakeRewrite(lake=lake, table=log.table).run()
        with pytest.raises(CommitConflict) as refused:
            met.commit(early)
        assert not refused.value.lost
        met.commit()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("rewrites")
    def test_a_rewrite_that_meets_a_round_is_prepared_again(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        rewrite = LakeRewrite(lake=lake, table=log.table).write()
        early = rewrite.prepare()
        log.append(B0, row(2))
        LakeRound.plan(lake, log).run()
        with pytest.raises(CommitConflict) as refused:
            rewrite.commit(early)
        assert not refused.value.lost
        assert rewrite.commit().offsets == log.ends()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("rewrites", "upserts")
    def test_a_group_that_lost_an_input_is_left_out_alone(self, lake: LakeStorage) -> None:
        log, _ = self.changed(lake, 4)
        late = LakeRewrite(lake=lake, table=log.table).write()
        LakeRewrite(lake=lake, table=log.table, buckets=(B0,)).run()
        prepared = late.prepare()
        assert prepared.left_out == (0,)
        late.commit(prepared)
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        assert late.prepare().committable is None

    @needs("rewrites")
    def test_a_fence_stops_a_rewrite(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        rewrite = LakeRewrite(lake=lake, table=log.table).write()
        early = rewrite.prepare()
        lake.open_maintenance(log.table).fence(rewrite.base, new_round_id(), 1)
        for prepared in (early, rewrite.prepare()):
            with pytest.raises(CommitConflict) as refused:
                rewrite.commit(prepared)
            assert refused.value.lost
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("rewrites")
    def test_a_sweep_takes_a_rewrite_that_will_never_land(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        rewrite = LakeRewrite(lake=lake, table=log.table).write()
        prefix = rewrite.committer.prefix(rewrite.round_id)
        rewrite.prepare()
        upkeep = lake.open_maintenance(log.table)
        assert list(upkeep.list_files(prefix))
        removal_of(lake, log).sweep()
        assert not list(upkeep.list_files(prefix))
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("rewrites", "upserts")
    def test_files_without_a_live_row_leave_without_a_successor(self, lake: LakeStorage) -> None:
        log = self.make_log(lake, **PK)
        log.upsert(B0, row(1), row(2))
        LakeRound.plan(lake, log).run()
        log.delete(B0, row(1), row(2))
        landed = LakeRound.plan(lake, log).run()
        rewrite = LakeRewrite(lake=lake, table=log.table)
        if rewrite.groups:  # some formats take a file out with its last row
            landed = rewrite.run()
        assert list(lake.open_reader(log.table).files(landed.snapshot_id)) == []
        assert lake_rows(lake, log.table) == []

    @needs("rewrites", "upserts")
    def test_files_that_others_sorted_otherwise_come_into_offset_order(self, lake: LakeStorage) -> None:
        log, chance = self.changed(lake, 5)
        self.foreign_rewrite(lake, log.table)
        change_randomly(log, chance, 20)
        LakeRound.plan(lake, log).run()
        rewrite = LakeRewrite(lake=lake, table=log.table).write()
        change_randomly(log, chance, 20)
        LakeRound.plan(lake, log).run()
        landed = rewrite.commit()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        reader = lake.open_reader(log.table)
        for group in rewrite.groups:
            for batch in reader.scan(landed.snapshot_id, columns=["__offset"], buckets=[group.bucket]):
                offsets = batch.column(0).to_pylist()
                assert offsets == sorted(offsets)

    @needs("rewrites", "add_column")
    def test_rewritten_files_carry_todays_columns(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        lake.catalog().add_columns(log.table, [Column(name="more", type=StringType())])
        landed = LakeRewrite(lake=lake, table=log.table).run()
        (batch,) = lake.open_reader(log.table).scan(landed.snapshot_id, columns=["id", "more"])
        assert batch.to_pylist() == [{"id": 1, "more": None}]

    @needs("rewrites")
    def test_a_rewrite_that_comes_due_ends_without_a_result(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        rewrite = LakeRewrite(lake=lake, table=log.table).write(is_due=lambda: True)
        assert rewrite.results == []
