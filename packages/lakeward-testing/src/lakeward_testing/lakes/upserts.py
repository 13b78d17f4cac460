# SPDX-License-Identifier: Apache-2.0
"""The lake contract's PK tables: after every round the lake equals a dict."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeward.changelog.columns import keep_rows, with_change, without_prev
from lakeward.errors import CommitConflict, ForeignRowsFound, ReplacedRowMissing
from lakeward.model import CHANGE_TYPE, OFFSET, TIMESTAMP, Bucket, ChangeType, OffsetSet, SnapshotSplit, TableInfo
from lakeward.spi import LakeStorage, Renewal, SupportsChanges, SupportsKeyDeletes
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, needs, row
from lakeward_testing.scripted_log import ScriptedLog

PK: dict[str, Any] = {"primary_key": ("id",)}


class UpsertContract(LakeSuite):
    @needs("upserts")
    def test_upserts_and_deletes_over_rounds_equal_a_dict(self, lake: LakeStorage) -> None:
        log, chance = self.make_log(lake, **PK), random.Random(5)  # noqa: S311 - a test's script
        for _ in range(8):
            change_randomly(log, chance, 12)
            lake_round = LakeRound.plan(lake, log)
            for bucket in (B0, B1):
                if lake.capabilities.one_writer_per_bucket:
                    lake_round.write(bucket)
                else:
                    write_in_sub_splits(lake_round, bucket, chance)
            snapshot = lake_round.commit()
            assert snapshot.offsets == log.ends()
            assert lake_rows(lake, log.table) == log.expected(log.ends())
            check_totals(lake, log.table)
        reader = lake.open_reader(log.table)
        for shown in reader.snapshots():
            assert shown.offsets is not None
            assert lake_rows(lake, log.table, shown.snapshot_id) == log.expected(shown.offsets)
        assert any(f.deletes or f.is_reader_needed for f in reader.files(snapshot.snapshot_id))

    @needs("upserts", "positions")
    def test_a_sub_split_replaces_rows_of_the_one_before_it(self, lake: LakeStorage) -> None:
        log = self.make_log(lake, **PK)
        middle = log.upsert(B0, row(1), row(2), row(3))
        log.upsert(B0, row(2, "new"))
        log.delete(B0, row(3))
        lake_round = LakeRound.plan(lake, log).write(B0, middle).write(B0)
        assert len(lake_round.replaced[B0]) == 2
        lake_round.commit()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("upserts", "positions")
    def test_a_snapshot_split_is_the_ground_that_later_changes_stand_on(self, lake: LakeStorage) -> None:
        """The first round of a PK table: live rows of the KV, sorted by offset, then the log from there."""
        log = self.make_log(lake, **PK)
        log.upsert(B0, row(1), row(2), row(3))
        log.upsert(B0, row(1, "new"))
        log.delete(B0, row(2))
        at = log.end(B0)
        log.delete(B0, row(3))
        log.upsert(B0, row(1, "newest"))
        lake_round = LakeRound.plan(lake, log)
        split = SnapshotSplit(bucket=B0, snapshot_id="s1", log_offset=at)
        writer = lake.open_writer(replace(lake_round.task(B0, 0, at), split=split))
        live = {offset for _, offset, _ in log.expected({B0: at})}
        whole = log.batch(B0, 0, at).select(["id", "name", "amount", "__offset", "__timestamp"])
        writer.write(whole.filter(pa.array([o in live for o in whole.column("__offset").to_pylist()])))
        lake_round.take(B0, at, writer.complete())
        lake_round.write(B0)
        assert len(lake_round.replaced[B0]) == 2
        assert lake_round.commit().offsets == log.ends()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("upserts", "positions")
    def test_a_round_of_deletes_alone_writes_no_data_file(self, lake: LakeStorage) -> None:
        log = self.make_log(lake, **PK)
        log.upsert(B0, row(1), row(2))
        LakeRound.plan(lake, log).run()
        log.delete(B0, row(1), row(2))
        lake_round = LakeRound.plan(lake, log)
        lake_round.run()
        assert lake_round.results == []
        assert lake_rows(lake, log.table) == []

    @needs("upserts", "conditional_commit")
    def test_files_rewritten_by_others_are_resolved_again(self, lake: LakeStorage) -> None:
        log, chance = self.make_log(lake, **PK), random.Random(6)  # noqa: S311 - a test's script
        change_randomly(log, chance, 30)
        LakeRound.plan(lake, log).run()
        change_randomly(log, chance, 30)
        lake_round = LakeRound.plan(lake, log).write(B0).write(B1)
        early = lake_round.prepare()
        self.foreign_rewrite(lake, log.table)
        with pytest.raises(CommitConflict) as refused:
            lake_round.commit(early)
        assert not refused.value.lost
        lake_round.commit()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        self.foreign_rewrite(lake, log.table)
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        change_randomly(log, chance, 30)
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("upserts")
    @pytest.mark.parametrize("policy", ["stop", "remove"])
    @pytest.mark.parametrize("offset", [10**12, 0], ids=["an offset of their own", "one that a row of ours has"])
    def test_rows_that_others_inserted_stop_the_round_or_go(self, lake: LakeStorage, policy: str, offset: int) -> None:
        log = self.make_log(lake, **PK, properties={"table.datalake.foreign-rows": policy})
        log.upsert(B0, row(1), row(2))
        LakeRound.plan(lake, log).run()
        self.foreign_insert(lake, log.table, [{**row(1, "theirs"), "__offset": offset}])
        self.foreign_commit(lake, log.table)
        log.upsert(B0, row(2, "new"))
        if policy == "stop":
            with pytest.raises(ForeignRowsFound) as stopped:
                LakeRound.plan(lake, log).run()
            assert stopped.value.rows == 1
        else:
            LakeRound.plan(lake, log).run()
            assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("upserts", "rewrites")
    @pytest.mark.parametrize("buckets", [None, (B1,)], ids=["that takes them along", "of other files"])
    def test_a_rewrite_does_not_hide_rows_that_others_inserted(
        self, lake: LakeStorage, buckets: tuple[Bucket, ...] | None
    ) -> None:
        log = self.make_log(lake, **PK)
        for name in ("a", "b"):
            log.upsert(B0, row(1, name), row(2))
            log.upsert(B1, row(11, name), row(12))
            LakeRound.plan(lake, log).run()
        self.foreign_insert(lake, log.table, [{**row(1, "theirs"), "__offset": 10**12}])
        rewrite = LakeRewrite(lake=lake, table=log.table, buckets=buckets).write()
        if (prepared := rewrite.prepare()).committable is not None:
            rewrite.commit(prepared)
        log.upsert(B0, row(2, "new"))
        with pytest.raises(ForeignRowsFound) as stopped:
            LakeRound.plan(lake, log).run()
        assert stopped.value.rows == 1

    @needs("upserts")
    @pytest.mark.parametrize("policy", ["stop", "remove"])
    def test_a_row_that_others_copied_and_moved_stops_the_round(self, lake: LakeStorage, policy: str) -> None:
        """Its address with it: one of two equal addresses is ours, and nobody can tell which."""
        log = self.make_log(lake, **PK, properties={"table.datalake.foreign-rows": policy})
        log.upsert(B0, row(1), row(2))
        LakeRound.plan(lake, log).run()
        self.foreign_insert(lake, log.table, [{**row(1, "theirs"), "__offset": 0}])
        self.foreign_rewrite(lake, log.table)
        log.upsert(B0, row(2, "new"))
        with pytest.raises(ForeignRowsFound) as stopped:
            LakeRound.plan(lake, log).run()
        assert stopped.value.rows == 1

    @needs("upserts")
    def test_renewed_rows_go_from_the_head_and_stay_in_what_the_round_wrote(self, lake: LakeStorage) -> None:
        log = self.make_log(lake, **PK)
        log.upsert(B0, row(1), row(2))
        LakeRound.plan(lake, log).run()
        self.foreign_insert(lake, log.table, [{**row(1, "altered"), "__offset": 0}])
        head = lake.open_reader(log.table).load_base_as_is().head
        assert head is not None
        again = LakeRound.plan(lake, log, generation=1)
        again.renewal = Renewal(head=head, offsets={B0: OffsetSet([0])})
        writer = lake.open_writer(again.task(B0, 0, 1))
        writer.write(keep_rows(log.batch(B0, 0, 1), np.ones(1, np.bool_)))
        again.take(B0, 2, writer.complete())
        again.commit()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("upserts", "positions")
    def test_a_replaced_row_that_is_nowhere_fails_the_round(self, lake: LakeStorage) -> None:
        log = self.make_log(lake, **PK)
        log.upsert(B0, row(1))
        LakeRound.plan(lake, log).run()
        lake_round = LakeRound.plan(lake, log)
        lake_round.take(B0, 5, None, OffsetSet([3]))
        with pytest.raises(ReplacedRowMissing) as failed:
            lake_round.prepare()
        assert failed.value.offset == 3
        assert lake_rows(lake, log.table) == log.expected({B0: 1})

    @needs("upserts", "partitions")
    def test_equal_keys_in_two_partitions_are_two_rows(self, lake: LakeStorage) -> None:
        eu, us = Bucket("eu", 0), Bucket("us", 0)
        columns = {"id": "BIGINT NOT NULL", "name": "STRING", "amount": "DECIMAL(10, 2)", "region": "STRING NOT NULL"}
        log = self.make_log(lake, columns=columns, primary_key=("id", "region"), partition_keys=("region",))
        log.upsert(eu, row(1, region="eu"))
        log.upsert(us, row(1, region="us"))
        LakeRound.plan(lake, log).run()
        log.delete(eu, row(1, region="eu"))
        log.upsert(us, row(1, "new", region="us"))
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("upserts", "native")
    def test_of_changes_of_one_key_the_last_counts(self, lake: LakeStorage) -> None:
        log = self.make_log(lake, **PK)
        log.upsert(B0, row(1), row(2), row(3))
        lake_round = LakeRound.plan(lake, log)
        writer = lake.open_writer(lake_round.task(B0, 0, 3))
        assert isinstance(writer, SupportsChanges)
        writer.write_changes(without_prev(log.batch(B0, 0, 3)))
        lake_round.take(B0, 3, writer.complete())
        lake_round.commit()
        start = log.end(B0)
        log.upsert(B0, row(2, "new"), row(2, "newer"), row(4))
        log.delete(B0, row(3), row(4), row(9))
        lake_round = LakeRound.plan(lake, log)
        writer = lake.open_writer(lake_round.task(B0, start, log.end(B0)))
        assert isinstance(writer, SupportsChanges)
        for at in range(start, log.end(B0)):
            writer.write_changes(without_prev(log.batch(B0, at, at + 1)))
        lake_round.take(B0, log.end(B0), writer.complete())
        lake_round.commit()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        check_totals(lake, log.table)

    @needs("upserts", "native")
    def test_keys_alone_delete_before_whole_rows_come(self, lake: LakeStorage) -> None:
        """As a resync does: every key that the lake has goes, then the rows of the hot store come."""
        log = self.make_log(lake, **PK)
        log.upsert(B0, row(1), row(2), row(3))
        LakeRound.plan(lake, log).run()
        log.delete(B0, row(1))
        log.upsert(B0, row(2, "new"), row(4))
        lake_round = LakeRound.plan(lake, log, generation=1)
        head = lake_round.base.head
        assert head is not None
        writer = lake.open_writer(lake_round.task(B0, 0, log.end(B0)))
        assert isinstance(writer, SupportsChanges)
        names = ["id", OFFSET, TIMESTAMP]
        for batch in lake_round.reader.scan(head, columns=names, buckets=[B0]):
            writer.write_changes(with_change(batch, ChangeType.DELETE))
        for _, offset, _ in log.expected(log.ends()):
            whole = without_prev(log.batch(B0, offset, offset + 1)).drop_columns([CHANGE_TYPE])
            writer.write_changes(with_change(whole, ChangeType.INSERT))
        lake_round.take(B0, log.end(B0), writer.complete())
        lake_round.commit()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        log.upsert(B0, row(1, "again"), row(3, "later"))
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("upserts", "equality")
    def test_keys_delete_older_rows_and_no_newer_ones(self, lake: LakeStorage) -> None:
        log = self.make_log(lake, **PK)
        log.upsert(B0, row(1), row(2), row(3))
        LakeRound.plan(lake, log).run()
        start = log.end(B0)
        log.upsert(B0, row(2, "new"))
        log.delete(B0, row(3))
        lake_round = LakeRound.plan(lake, log)
        writer = lake.open_writer(lake_round.task(B0, start, log.end(B0)))
        assert isinstance(writer, SupportsKeyDeletes)
        writer.delete_keys(pa.record_batch({"id": pa.array([2, 3], pa.int64())}))
        new = log.batch(B0, start + 1, start + 2).select(["id", "name", "amount", "__offset", "__timestamp"])
        writer.write(new)
        lake_round.take(B0, log.end(B0), writer.complete())
        lake_round.commit()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        check_totals(lake, log.table)


def check_totals(lake: LakeStorage, table: TableInfo) -> None:
    """Totals may count rows that are deleted by key, and say so then."""
    totals, rows = lake.open_reader(table).totals(), len(lake_rows(lake, table))
    assert totals.rows == rows if totals.is_exact else totals.rows >= rows, totals


def change_randomly(log: ScriptedLog, chance: random.Random, count: int) -> None:
    for _ in range(count):
        bucket, number = chance.choice((B0, B1)), chance.randrange(8)
        if chance.random() < 0.3:
            log.delete(bucket, row(number))
        else:
            log.upsert(bucket, row(number, f"change {chance.randrange(1000)}"))


def write_in_sub_splits(lake_round: LakeRound, bucket: Bucket, chance: random.Random) -> None:
    end = lake_round.log.end(bucket)
    while lake_round.start(bucket) < end:
        lake_round.write(bucket, min(end, lake_round.start(bucket) + chance.randint(2, 7)))
