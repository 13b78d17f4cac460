# SPDX-License-Identifier: Apache-2.0
"""The lake contract's commits: offsets, tokens, conditions, lost answers, other engines, rollback."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date

import pyarrow.compute as pc
import pytest

from lakeward.errors import CommitConflict, CommitUnknown, LakeForeign, LakeRolledBack, LakewardError, SnapshotGone
from lakeward.model import Bucket, OffsetMap, OffsetSet, SnapshotId, new_round_id, new_table_id
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, LakeStorage
from lakeward_testing.lakes.removal import removal_of
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, COLUMNS, LakeSuite, needs, row


class CommitContract(LakeSuite):
    def test_an_empty_table_has_an_empty_base(self, lake: LakeStorage) -> None:
        reader = lake.open_reader(self.make_log(lake).table)
        base = reader.load_base()
        assert (dict(base.offsets), base.token, base.fence, base.head) == ({}, None, 0, None)
        assert reader.load_snapshot() is None
        assert list(reader.snapshots()) == []
        assert reader.totals().rows == 0

    def test_a_round_appends_its_rows_and_says_what_it_is(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1), row(2))
        log.append(B1, row(3))
        lake_round = LakeRound.plan(lake, log, epoch=7)
        snapshot = lake_round.run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        assert snapshot.offsets == log.ends()
        assert (snapshot.round_id, snapshot.epoch, snapshot.job) == (lake_round.round_id, 7, "contract")
        assert (snapshot.table_id, snapshot.fence, snapshot.lake_rows) == (log.table.table_id, 0, 3)
        assert snapshot.summary[COMMIT_USER_KEY] == COMMIT_USER
        base = lake_round.reader.load_base()
        assert (base.offsets, base.token, base.head, base.epoch) == (
            log.ends(),
            lake_round.round_id,
            snapshot.snapshot_id,
            7,
        )

    def test_offsets_are_the_heads_overlaid_with_the_rounds(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1), row(2))
        log.append(B1, row(3))
        LakeRound.plan(lake, log).run(B0)
        assert LakeRound.plan(lake, log).run(B1).offsets == OffsetMap({B0: 2, B1: 1})
        log.append(B0, row(4))
        last = LakeRound.plan(lake, log).run(B0)
        assert last.offsets == OffsetMap({B0: 3, B1: 1})
        assert last.lake_rows == 4
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("partitions")
    def test_rows_of_partitions_stay_apart(self, lake: LakeStorage) -> None:
        log = self.make_log(lake, columns={**COLUMNS, "region": "STRING NOT NULL"}, partition_keys=("region",))
        eu, us = Bucket("eu", 0), Bucket("us", 0)
        log.append(eu, row(1, region="eu"), row(2, region="eu"))
        log.append(us, row(3, region="us"))
        snapshot = LakeRound.plan(lake, log).run()
        assert snapshot.offsets == OffsetMap({eu: 2, us: 1})
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        reader = lake.open_reader(log.table)
        only = [r for b in reader.scan(snapshot.snapshot_id, buckets=[us]) for r in b.to_pylist()]
        assert [r["id"] for r in only] == [3]
        assert [f.partition for f in reader.files(snapshot.snapshot_id, us)] == [{"region": "us"}]

    @needs("partitions")
    def test_partition_values_have_types(self, lake: LakeStorage) -> None:
        columns = {**COLUMNS, "day": "DATE NOT NULL", "shop": "INT NOT NULL"}
        log = self.make_log(lake, columns=columns, partition_keys=("day", "shop"))
        for day, shop in ((date(1969, 12, 31), -1), (date(2024, 2, 29), 7)):
            log.append(Bucket(f"{day}${shop}", 1), row(shop, day=day, shop=shop))
        lake_round = LakeRound.plan(lake, log)
        snapshot = lake_round.run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        for bucket in log.ends():
            assert [
                r["shop"] for b in lake_round.reader.scan(snapshot.snapshot_id, buckets=[bucket]) for r in b.to_pylist()
            ] == [int(bucket.partition.partition("$")[2])]

    def test_offsets_of_very_many_buckets_are_kept(self, lake: LakeStorage) -> None:
        """More than fits into a snapshot's summary; also a sweep and a foreign commit leave them."""
        log = self.make_log(lake, bucket_count=3000)
        lake_round = LakeRound.plan(lake, log)
        for number in range(3000):
            lake_round.take(Bucket("", number), number + 1_000_000, None)
        lake_round.commit()
        self.foreign_commit(lake, log.table)
        left = LakeRound.plan(lake, log)
        log.skip(B0, 1_000_000)
        log.append(B0, row(1))
        left.write(B0)
        removal_of(lake, log).sweep()
        wanted = OffsetMap({Bucket("", n): n + 1_000_000 for n in range(3000)})
        assert lake_round.reader.load_base().offsets == wanted
        assert LakeRound.plan(lake, log).run(B0).offsets == wanted.overlaid({B0: 1_000_001})
        landed_snapshot = lake_round.committer.find(lake_round.round_id)
        assert landed_snapshot is not None
        assert landed_snapshot.offsets == wanted

    def test_sub_splits_of_a_bucket_come_in_order_with_gaps_kept(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, *(row(i) for i in range(6)))
        log.skip(B0, 5)
        log.append(B0, *(row(i) for i in range(6, 9)))
        lake_round = LakeRound.plan(lake, log).write(B0, 4, batches=2).write(B0, 11)
        lake_round.write(B0)
        snapshot = lake_round.commit()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        files = lake_round.reader.files(snapshot.snapshot_id, B0)
        assert sum(f.record_count for f in files) == 9
        assert sorted((f.offsets.start, f.offsets.stop) for f in files if f.offsets) == [(0, 4), (4, 6), (11, 14)]
        assert all(f.bucket == B0 and f.size_bytes > 0 and not f.deletes for f in files)

    def test_offsets_may_move_without_a_row(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        log.skip(B0, 4)
        lake_round = LakeRound.plan(lake, log)
        lake_round.take(B0, 5, None)
        assert lake_round.commit().offsets == OffsetMap({B0: 5})
        assert lake_round.reader.load_base().token == lake_round.round_id
        assert lake_rows(lake, log.table) == log.expected({B0: 5})

    def test_an_older_snapshot_reads_as_it_was(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        first = LakeRound.plan(lake, log).run()
        log.append(B0, row(2))
        second = LakeRound.plan(lake, log).run()
        reader = lake.open_reader(log.table)
        assert lake_rows(lake, log.table, first.snapshot_id) == log.expected({B0: 1})
        assert [(s.snapshot_id, s.offsets) for s in reader.snapshots()] == [
            (first.snapshot_id, OffsetMap({B0: 1})),
            (second.snapshot_id, OffsetMap({B0: 2})),
        ]
        shown = reader.load_snapshot(first.snapshot_id)
        assert shown is not None
        assert shown.offsets == OffsetMap({B0: 1})
        with pytest.raises(SnapshotGone):
            reader.load_snapshot(SnapshotId("424242"))

    def test_a_scan_takes_columns_a_condition_and_buckets(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1), row(2))
        log.append(B1, row(3), row(4))
        lake_round = LakeRound.plan(lake, log)
        shown = lake_round.run()
        scan = lake_round.reader.scan(
            shown.snapshot_id, columns=["name", "__offset"], filter=pc.field("id") > 1, buckets=[B0]
        )
        assert [r for b in scan for r in b.to_pylist()] == [{"name": "row 2", "__offset": 1}]
        default = next(iter(lake_round.reader.scan(shown.snapshot_id)))
        assert tuple(default.schema.names) == log.table.schema.names

    def test_a_scan_leaves_out_more_rows_by_bucket_and_offset(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1), row(2), row(3))
        log.append(B1, row(4), row(5))
        lake_round = LakeRound.plan(lake, log)
        shown = lake_round.run()
        gone = {B0: OffsetSet([0, 2, 77])}
        for columns, wanted in ((["id"], {"id": 2}), (["id", "__offset"], {"id": 2, "__offset": 1})):
            scan = lake_round.reader.scan_buckets(shown.snapshot_id, columns=columns, without=gone)
            assert [r for bucket, batch in scan if bucket == B0 for r in batch.to_pylist()] == [wanted]
        scan = lake_round.reader.scan_buckets(
            shown.snapshot_id, columns=["id"], filter=pc.field("id") > 1, without=gone
        )
        assert sorted(r["id"] for _, batch in scan for r in batch.to_pylist()) == [2, 4, 5]

    # ---- conditions --------------------------------------------------------------------------------------------------
    @needs("conditional_commit")
    def test_a_commit_from_stale_offsets_is_refused(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        zombie = LakeRound.plan(lake, log).write(B0)
        LakeRound.plan(lake, log).run()
        with pytest.raises(CommitConflict) as refused:
            zombie.commit()
        assert refused.value.lost
        assert zombie.committer.find(zombie.round_id) is None
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("conditional_commit")
    def test_a_commit_with_a_stale_token_is_refused_though_its_buckets_did_not_move(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        log.append(B1, row(2))
        zombie = LakeRound.plan(lake, log).write(B1)
        LakeRound.plan(lake, log).run(B0)
        with pytest.raises(CommitConflict) as refused:
            zombie.commit()
        assert refused.value.lost

    @needs("conditional_commit")
    @pytest.mark.parametrize("start", [0, 2, None])
    def test_a_commit_that_starts_elsewhere_is_refused_though_its_token_is_right(
        self, lake: LakeStorage, start: int | None
    ) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        log.append(B0, row(2))
        lake_round = LakeRound.plan(lake, log).write(B0)
        with pytest.raises(CommitConflict) as refused:
            lake_round.committer.commit(lake_round.prepare(), replace(lake_round.precondition, starts={B0: start}))
        assert refused.value.lost
        assert lake_rows(lake, log.table) == log.expected({B0: 1})

    @needs("conditional_commit")
    def test_a_commit_prepared_on_a_head_that_moved_is_refused(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        zombie = LakeRound.plan(lake, log).write(B0)
        late = zombie.prepare()
        LakeRound.plan(lake, log).run()
        with pytest.raises(CommitConflict) as refused:
            zombie.commit(late)
        assert refused.value.lost
        with pytest.raises(CommitConflict):
            zombie.commit(zombie.prepare(late.base))
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("conditional_commit")
    def test_of_rounds_that_race_one_wins(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        racers = [LakeRound.plan(lake, log).write(B0) for _ in range(4)]
        requests = [r.prepare() for r in racers]
        lined_up = threading.Barrier(len(racers))

        def race(number: int) -> str:
            lined_up.wait(120)
            try:
                racers[number].commit(requests[number])
            except (CommitConflict, CommitUnknown) as error:
                return error.code
            return "done"

        with ThreadPoolExecutor(len(racers)) as pool:
            told = list(pool.map(race, range(len(racers))))
        landed = [r for r in racers if r.committer.find(r.round_id) is not None]
        assert len(landed) == 1, told
        assert told.count("done") <= 1
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("conditional_commit")
    def test_a_foreign_commit_in_between_means_prepare_again(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        log.append(B0, row(2))
        lake_round = LakeRound.plan(lake, log).write(B0)
        early = lake_round.prepare()
        self.foreign_commit(lake, log.table)
        with pytest.raises(CommitConflict) as refused:
            lake_round.commit(early)
        assert not refused.value.lost
        assert lake_round.committer.find(lake_round.round_id) is None
        assert lake_round.commit().offsets == OffsetMap({B0: 2})
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    def test_a_foreign_commit_leaves_offsets_and_token(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        lake_round = LakeRound.plan(lake, log)
        ours = lake_round.run()
        self.foreign_commit(lake, log.table)
        base = lake_round.reader.load_base()
        assert (base.offsets, base.token) == (OffsetMap({B0: 1}), lake_round.round_id)
        head = lake_round.reader.load_snapshot()
        assert head is not None
        assert (head.snapshot_id == base.head, head.offsets) == (True, OffsetMap({B0: 1}))
        assert head.snapshot_id != ours.snapshot_id
        assert head.round_id is None

    def test_a_fence_that_compaction_planned_on_must_stand(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        lake_round = LakeRound.plan(lake, log).write(B0)
        with pytest.raises(CommitConflict) as refused:
            lake_round.committer.commit(lake_round.prepare(), replace(lake_round.precondition, fence=3))
        assert refused.value.lost

    @needs("conditional_commit")
    def test_a_commit_that_names_a_fence_goes_over_rounds(self, lake: LakeStorage) -> None:
        """The token counts without a fence alone; offsets that are named count always."""
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        log.append(B1, row(2))
        lake_round = LakeRound.plan(lake, log).write(B1)
        over = replace(lake_round.precondition, token=new_round_id(), fence=0)
        with pytest.raises(CommitConflict) as refused:
            lake_round.committer.commit(lake_round.prepare(), replace(over, fence=None))
        assert refused.value.lost
        with pytest.raises(CommitConflict) as refused:
            lake_round.committer.commit(lake_round.prepare(), replace(over, starts={B0: 0}))
        assert refused.value.lost
        assert lake_round.committer.commit(lake_round.prepare(), over).offsets == log.ends()

    @needs("conditional_commit")
    def test_a_round_in_between_is_not_the_end_of_a_commit_that_names_a_fence(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        lake_round = LakeRound.plan(lake, log).write(B0)
        early, condition = lake_round.prepare(), replace(lake_round.precondition, starts={}, fence=0)
        log.append(B1, row(2))
        LakeRound.plan(lake, log).run(B1)
        with pytest.raises(CommitConflict) as refused:
            lake_round.committer.commit(early, condition)
        assert not refused.value.lost
        lake_round.committer.commit(lake_round.prepare(), condition)
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("conditional_commit")
    def test_a_fence_in_between_is_the_end_of_a_commit_that_names_one(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        log.append(B1, row(2))
        lake_round = LakeRound.plan(lake, log).write(B1)
        early, condition = lake_round.prepare(), replace(lake_round.precondition, starts={}, fence=0)
        fenced = lake.open_maintenance(log.table).fence(lake_round.base, new_round_id(), 1)
        assert (fenced.fence, lake_round.reader.load_base().fence) == (1, 1)
        for committable in (early, lake_round.prepare()):
            with pytest.raises(CommitConflict) as refused:
                lake_round.committer.commit(committable, condition)
            assert refused.value.lost

    # ---- answers that do not come ------------------------------------------------------------------------------------
    def test_a_round_that_is_not_there_is_not_found(self, lake: LakeStorage) -> None:
        assert lake.open_committer(self.make_log(lake).table).find(new_round_id()) is None

    def test_a_lost_answer_to_a_commit_that_took_effect(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        lake_round = LakeRound.plan(lake, log).write(B0)
        request = lake_round.prepare()
        with self.lost_answer(took_effect=True), pytest.raises(CommitUnknown):
            lake_round.commit(request)
        landed_snapshot = lake_round.committer.find(lake_round.round_id)
        assert landed_snapshot is not None
        assert (landed_snapshot.offsets, landed_snapshot.round_id) == (OffsetMap({B0: 1}), lake_round.round_id)
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    def test_a_lost_request_is_sent_again_unchanged(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        lake_round = LakeRound.plan(lake, log).write(B0)
        request = lake_round.prepare()
        with self.lost_answer(took_effect=False), pytest.raises(CommitUnknown):
            lake_round.commit(request)
        assert lake_round.committer.find(lake_round.round_id) is None
        assert lake_round.commit(request).round_id == lake_round.round_id
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    def test_a_conflict_that_was_our_own_success(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        lake_round = LakeRound.plan(lake, log).write(B0)
        request = lake_round.prepare()
        done = lake_round.commit(request)
        with pytest.raises(CommitConflict):
            lake_round.commit(request)
        landed_snapshot = lake_round.committer.find(lake_round.round_id)
        assert landed_snapshot is not None
        assert landed_snapshot.snapshot_id == done.snapshot_id
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    # ---- whose table is it -------------------------------------------------------------------------------------------
    @needs("tags")
    def test_a_rollback_is_noticed(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        first = LakeRound.plan(lake, log).run()
        log.append(B0, row(2))
        LakeRound.plan(lake, log).run()
        log.append(B0, row(3))
        under_way = LakeRound.plan(lake, log).write(B0)
        request = under_way.prepare()
        self.roll_back(lake, log.table, first.snapshot_id)
        with pytest.raises(LakeRolledBack):
            lake.open_reader(log.table).load_base()
        with pytest.raises((CommitConflict, LakeRolledBack)):
            under_way.commit(request)

    @needs("tags")
    def test_a_resync_takes_a_rolled_back_lake_as_it_is(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        first = LakeRound.plan(lake, log).run()
        log.append(B0, row(2))
        LakeRound.plan(lake, log).run()
        self.roll_back(lake, log.table, first.snapshot_id)
        base, head = lake.open_reader(log.table).load_base_as_is(), lake.open_reader(log.table).load_snapshot()
        assert head is not None
        assert (base.offsets, base.token, base.head) == (OffsetMap({B0: 1}), first.round_id, head.snapshot_id)
        assert lake_rows(lake, log.table) == log.expected({B0: 1})
        lake_round = LakeRound.plan(lake, log, planned_on=base, generation=base.generation + 1).write(B0)
        lake_round.commit(lake_round.prepare(base))
        after = lake.open_reader(log.table).load_base()
        assert (after.offsets, after.token, after.generation) == (OffsetMap({B0: 2}), lake_round.round_id, 1)
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("tags")
    def test_fence_and_generation_do_not_go_back_with_a_rollback(self, lake: LakeStorage) -> None:
        """A zombie of before the rollback would find its fence standing."""
        log = self.make_log(lake)
        log.append(B0, row(1))
        first = LakeRound.plan(lake, log).run()
        log.append(B0, row(2))
        LakeRound.plan(lake, log, generation=1).run()
        fenced_on = lake.open_reader(log.table).load_base()
        lake.open_maintenance(log.table).fence(fenced_on, new_round_id(), epoch=2)
        self.roll_back(lake, log.table, first.snapshot_id)
        base = lake.open_reader(log.table).load_base_as_is()
        assert (base.offsets, base.fence, base.generation) == (OffsetMap({B0: 1}), 1, 1)

    def test_offsets_never_go_back_in_one_generation(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1), row(2))
        LakeRound.plan(lake, log).run()
        lake_round = LakeRound.plan(lake, log)
        lake_round.take(B0, 1, None)
        with pytest.raises(CommitConflict) as refused:
            lake_round.commit()
        assert refused.value.lost
        assert lake.open_reader(log.table).load_base().offsets == OffsetMap({B0: 2})

    def test_offsets_may_go_back_in_a_new_generation(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1), row(2))
        LakeRound.plan(lake, log).run()
        lake_round = LakeRound.plan(lake, log, generation=1)
        lake_round.take(B0, 1, None)
        assert lake_round.commit().generation == 1
        assert lake_round.reader.load_base().offsets == OffsetMap({B0: 1})

    @needs("tags")
    def test_history_cut_by_another_engines_expiry_is_no_rollback(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        lake_round = LakeRound.plan(lake, log)
        lake_round.run()
        self.foreign_commit(lake, log.table)
        self.foreign_commit(lake, log.table)
        self.foreign_expire(lake, log.table)
        base = lake_round.reader.load_base()
        assert (base.offsets, base.token) == (OffsetMap({B0: 1}), lake_round.round_id)
        log.append(B0, row(2))
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    def test_another_tables_lake_is_refused(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        stranger = self.table_info(table_id=new_table_id())
        with pytest.raises(LakeForeign):
            lake.open_reader(stranger).load_base()
        log.append(B0, row(2))
        lake_round = LakeRound.plan(lake, log).write(B0)
        with pytest.raises((CommitConflict, LakeForeign)):
            lake_round.committer.commit(
                lake_round.prepare(), replace(lake_round.precondition, table_id=stranger.table_id)
            )
        assert lake_rows(lake, log.table) == log.expected({B0: 1})

    def test_abort_deletes_nothing(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        lake_round = LakeRound.plan(lake, log).write(B0)
        upkeep, prefix = lake.open_maintenance(log.table), lake_round.committer.prefix(lake_round.round_id)
        before = {f.path for f in upkeep.list_files(prefix)}
        writer = lake.open_writer(lake_round.task(B0, 0, 1, attempt=1))
        writer.write(log.batch(B0, 0, 1).select(["id", "name", "amount", "__offset", "__timestamp"]))
        writer.abort()
        writer.abort()
        assert before
        assert before <= {f.path for f in upkeep.list_files(prefix)}

    def test_a_writer_without_rows_has_no_result(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        assert lake.open_writer(LakeRound.plan(lake, log).task(B0, 0, 0)).complete() is None

    def test_bytes_of_another_plugin_are_refused(self, lake: LakeStorage) -> None:
        lake_round = LakeRound.plan(lake, self.make_log(lake))
        lake_round.take(B0, 1, b"not a result")
        with pytest.raises(LakewardError):
            lake_round.prepare()
