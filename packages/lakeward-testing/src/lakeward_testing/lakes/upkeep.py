# SPDX-License-Identifier: Apache-2.0
"""The lake contract's upkeep: fencing, listing, deleting, expiry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakeward.errors import CommitConflict, LakeTampered, SnapshotGone
from lakeward.model import OffsetMap, SnapshotId, new_round_id
from lakeward.spi import Expired, LakeStorage, SupportsSnapshotNames
from lakeward_testing.intents import MemoryIntents
from lakeward_testing.lakes.removal import LATER_MS, intent_of, removal_of
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, needs, row
from lakeward_testing.scripted_log import ScriptedLog

AGE_MS = 1_000
"""How long history is kept by the rounds below."""


class UpkeepContract(LakeSuite):
    @needs("conditional_commit")
    def test_a_fence_stops_a_paused_round_and_changes_no_row(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        log.append(B0, row(2))
        zombie = LakeRound.plan(lake, log).write(B0)
        request = zombie.prepare()
        fence_id, base = new_round_id(), zombie.reader.load_base()
        fence = lake.open_maintenance(log.table).fence(base, fence_id, epoch=9)
        assert (fence.fence, fence.round_id, fence.offsets, fence.epoch) == (1, fence_id, OffsetMap({B0: 1}), 9)
        after = zombie.reader.load_base()
        assert (after.token, after.fence, after.offsets) == (fence_id, 1, OffsetMap({B0: 1}))
        for late in (request, zombie.prepare()):
            with pytest.raises(CommitConflict) as refused:
                zombie.commit(late)
            assert refused.value.lost
        assert lake_rows(lake, log.table) == log.expected({B0: 1})
        assert LakeRound.plan(lake, log).run().fence == 1
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("conditional_commit")
    def test_a_fence_needs_the_head_it_was_planned_on(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        base = lake.open_reader(log.table).load_base()
        LakeRound.plan(lake, log).run()
        with pytest.raises(CommitConflict):
            lake.open_maintenance(log.table).fence(base, new_round_id(), epoch=1)
        assert lake.open_reader(log.table).load_base().fence == 0

    def test_a_table_without_snapshots_can_be_fenced(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        zombie = LakeRound.plan(lake, log).write(B0)
        lake.open_maintenance(log.table).fence(zombie.base, new_round_id(), epoch=1)
        with pytest.raises(CommitConflict):
            zombie.commit()
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    def test_files_are_listed_by_round_and_referenced_once_committed(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        left = LakeRound.plan(lake, log).write(B0)
        done = LakeRound.plan(lake, log)
        done.run()
        upkeep = lake.open_maintenance(log.table)
        abandoned = {f.path for f in upkeep.list_files(left.committer.prefix(left.round_id))}
        committed = {f.path for f in upkeep.list_files(done.committer.prefix(done.round_id))}
        assert abandoned
        assert committed
        prefixes = [r.committer.prefix(r.round_id) for r in (left, done)]
        together = upkeep.list_by_prefix([*prefixes, f"{prefixes[0]}nobody"])
        assert [{f.path for f in together[p]} for p in prefixes] == [abandoned, committed]
        assert not together[f"{prefixes[0]}nobody"]
        assert upkeep.list_by_prefix([]) == {}
        assert abandoned | committed <= {f.path for f in upkeep.list_files()}
        assert committed <= upkeep.references()
        assert not abandoned & upkeep.references()
        assert all(f.size_bytes > 0 and f.modified_at_ms > 0 for f in upkeep.list_files())
        assert {
            f.path for f in lake.open_reader(log.table).files(done.reader.load_base().head or SnapshotId(""))
        } <= upkeep.references()

    @needs("upserts")
    def test_delete_files_are_referenced_too(self, lake: LakeStorage) -> None:
        log = self.make_log(lake, primary_key=("id",))
        log.upsert(B0, row(1), row(2))
        LakeRound.plan(lake, log).run()
        log.delete(B0, row(1))
        lake_round = LakeRound.plan(lake, log)
        snapshot = lake_round.run()
        upkeep = lake.open_maintenance(log.table)
        deletes = {d.path for f in lake_round.reader.files(snapshot.snapshot_id) for d in f.deletes}
        assert deletes
        assert deletes <= upkeep.references()
        assert deletes <= {f.path for f in upkeep.list_files(lake_round.committer.prefix(lake_round.round_id))}

    def test_deleting_frees_bytes_once(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        left = LakeRound.plan(lake, log).write(B0)
        upkeep = lake.open_maintenance(log.table)
        prefix = left.committer.prefix(left.round_id)
        paths = [f.path for f in upkeep.list_files(prefix)]
        assert upkeep.delete(paths) > 0
        assert list(upkeep.list_files(prefix)) == []
        assert upkeep.delete(paths) == 0

    @needs("conditional_commit")
    def test_orphans_are_removed_and_a_zombie_finds_its_precondition_broken(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        done = LakeRound.plan(lake, log)
        done.run()
        log.append(B0, row(2))
        zombie, intents = LakeRound.plan(lake, log), MemoryIntents()
        intents.record(intent_of(zombie))
        zombie.write(B0)
        request = zombie.prepare()
        removal = removal_of(lake, log)
        report = removal.by_intents(intents)
        assert report.fenced
        assert report.files > 0
        assert report.bytes > 0
        upkeep = lake.open_maintenance(log.table)
        assert list(upkeep.list_files(zombie.committer.prefix(zombie.round_id))) == []
        with pytest.raises(CommitConflict):
            zombie.commit(request)
        assert lake_rows(lake, log.table) == log.expected({B0: 1})
        left = LakeRound.plan(lake, log).write(B0)
        swept = removal.sweep()
        assert (swept.fenced, swept.files > 0) == (True, True)
        assert list(upkeep.list_files(left.committer.prefix(left.round_id))) == []
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        assert upkeep.references() <= {f.path for f in upkeep.list_files()}

    @needs("snapshot_expiry")
    def test_expiry_lets_go_of_old_snapshots_only(self, lake: LakeStorage) -> None:
        log, ids = self._three_rounds(lake)
        upkeep, reader = lake.open_maintenance(log.table), lake.open_reader(log.table)
        self.foreign_commit(lake, log.table)
        assert list(upkeep.expirable(0)) == []
        assert [s.snapshot_id for s in upkeep.expirable(LATER_MS)] == ids[:2]
        leased, going = ids[0], ids[1]
        upkeep.expire([going])
        upkeep.expire([going])
        with pytest.raises(SnapshotGone):
            reader.load_snapshot(going)
        assert lake_rows(lake, log.table, leased) == log.expected({B0: 1})
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        base = reader.load_base()
        assert (base.offsets, base.token) == (log.ends(), reader.snapshots()[-2].round_id)

    @needs("snapshot_expiry", "tags")
    def test_age_counts_from_the_next_snapshot(self, lake: LakeStorage) -> None:
        """A table that was quiet for a day has yesterday's state for as long as its history is to be kept."""
        log, ids = self._three_rounds(lake)
        self.foreign_commit(lake, log.table)
        upkeep, reader = lake.open_maintenance(log.table), lake.open_reader(log.table)
        times = {s.snapshot_id: s.committed_at_ms for s in reader.snapshots()}
        assert list(upkeep.expirable(times[ids[1]] + AGE_MS)) == []
        assert next(iter(upkeep.expirable(times[ids[1]] + AGE_MS + 1))).snapshot_id == ids[0]

    @needs("snapshot_expiry")
    def test_as_many_snapshots_stay_as_the_table_says(self, lake: LakeStorage) -> None:
        history = f"{lake.name}.history.expire."
        properties = {f"{history}max-snapshot-age-ms": str(AGE_MS), f"{history}min-snapshots-to-keep": "3"}
        log, ids = self.make_log(lake, properties=properties), []
        for number in range(4):
            log.append(B0, row(number))
            ids.append(LakeRound.plan(lake, log).run().snapshot_id)
        assert [s.snapshot_id for s in lake.open_maintenance(log.table).expirable(LATER_MS)] == ids[:1]

    @needs("snapshot_expiry", "tags")
    def test_the_tagged_snapshot_and_the_head_stay_whatever_is_asked(self, lake: LakeStorage) -> None:
        log, ids = self._three_rounds(lake)
        self.foreign_commit(lake, log.table)
        head = lake.open_reader(log.table).load_base().head
        assert head is not None
        lake.open_maintenance(log.table).expire([*ids, head])
        kept = [s.snapshot_id for s in lake.open_reader(log.table).snapshots()]
        assert kept == [ids[2], head]
        assert lake.open_reader(log.table).load_base().offsets == log.ends()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("snapshot_expiry", "tags")
    def test_a_broken_tag_stops_nothing_and_is_repaired(self, lake: LakeStorage) -> None:
        log, ids = self._three_rounds(lake)
        upkeep, reader = lake.open_maintenance(log.table), lake.open_reader(log.table)
        self.break_tag(lake, log.table)
        assert reader.load_base().offsets == log.ends()
        assert [s.snapshot_id for s in upkeep.expirable(LATER_MS)] == ids[:2]
        upkeep.expire(ids[:1])
        log.append(B0, row(4))
        LakeRound.plan(lake, log).run()
        self.foreign_commit(lake, log.table)
        self.foreign_expire(lake, log.table)
        assert reader.load_base().offsets == log.ends()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("snapshot_expiry", "tags")
    def test_a_broken_tag_without_our_snapshots_is_not_taken_for_an_empty_lake(self, lake: LakeStorage) -> None:
        """Rounds would write every row again."""
        log, _ = self._three_rounds(lake)
        self.foreign_commit(lake, log.table)
        self.foreign_expire(lake, log.table)
        self.break_tag(lake, log.table)
        try:
            assert lake.open_reader(log.table).load_base().offsets == log.ends()
        except LakeTampered as refused:
            assert str(log.table.path) in str(refused)  # noqa: PT017

    @needs("snapshot_expiry", "snapshot_names")
    def test_a_snapshot_with_a_name_stays_until_the_name_goes(self, lake: LakeStorage) -> None:
        """Where a format has no such names it is left to the coordinator to spare the snapshot."""
        log, ids = self._three_rounds(lake)
        upkeep, reader = lake.open_maintenance(log.table), lake.open_reader(log.table)
        assert isinstance(upkeep, SupportsSnapshotNames)
        upkeep.untag("a-cut")
        upkeep.tag("a-cut", ids[1])
        for _ in range(2):
            upkeep.tag("a-cut", ids[0])
        upkeep.expire(ids)
        assert lake_rows(lake, log.table, ids[0]) == log.expected({B0: 1})
        assert ids[0] in [s.snapshot_id for s in reader.snapshots()]
        with pytest.raises(SnapshotGone, match="another engine expired it"):
            upkeep.tag("other", ids[1])
        upkeep.tag("a-cut", ids[0])
        LakeRound.plan(lake, log).run()
        assert removal_of(lake, log).sweep().files == 0
        for _ in range(2):
            upkeep.untag("a-cut")
        upkeep.expire(ids)
        with pytest.raises(SnapshotGone):
            reader.load_snapshot(ids[0])
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("upserts", "snapshot_names")
    def test_expiry_by_others_leaves_what_has_a_name(self, lake: LakeStorage) -> None:
        log, ids = self._three_rounds(lake, primary_key=("id",))
        upkeep, reader = lake.open_maintenance(log.table), lake.open_reader(log.table)
        assert isinstance(upkeep, SupportsSnapshotNames)
        upkeep.tag("a-cut", ids[0])
        self.foreign_expire(lake, log.table)
        listed = [s.snapshot_id for s in reader.snapshots()]
        assert ids[0] in listed
        assert ids[1] not in listed
        loaded = reader.load_snapshot(ids[0])
        assert loaded is not None
        assert loaded.offsets is not None
        assert lake_rows(lake, log.table, ids[0]) == log.expected(loaded.offsets)
        log.upsert(B0, row(1, "after it"))
        LakeRound.plan(lake, log).run()
        removal_of(lake, log).sweep()
        assert lake_rows(lake, log.table, ids[0]) == log.expected(loaded.offsets)
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("snapshot_expiry", "upserts", "tags")
    def test_expiry_deletes_files_that_only_it_referenced(self, lake: LakeStorage) -> None:
        log, ids = self._three_rounds(lake, primary_key=("id",))
        self.foreign_rewrite(lake, log.table)
        log.upsert(B0, row(1, "last"))
        LakeRound.plan(lake, log).run()
        upkeep = lake.open_maintenance(log.table)
        before = {f.path for f in upkeep.list_files()}
        assert upkeep.expire(ids) > 0
        gone = before - {f.path for f in upkeep.list_files()}
        assert gone
        assert not gone & upkeep.references()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        log.upsert(B0, row(1, "and once more"))
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("snapshot_expiry", "upserts", "tags")
    def test_a_round_takes_old_snapshots_out_with_its_own_commit(self, lake: LakeStorage) -> None:
        log, _ = self._three_rounds(lake, primary_key=("id",))
        self.foreign_rewrite(lake, log.table)
        log.upsert(B0, row(1, "last"))
        LakeRound.plan(lake, log).run()
        upkeep, reader = lake.open_maintenance(log.table), lake.open_reader(log.table)
        going = upkeep.expirable(LATER_MS)
        log.upsert(B0, row(2, "and out they go"))
        lake_round = LakeRound.plan(lake, log).write(B0)
        request = replace(lake_round.prepare(), expire=tuple(s.snapshot_id for s in going))
        before = {f.path for f in upkeep.list_files()}
        moved = {f.path for f in upkeep.list_files(lake_round.committer.prefix(lake_round.round_id))}
        needless = before - upkeep.references()
        assert upkeep.delete_expired(going) == Expired(), "they are all still there"
        lake_round.commit(request)
        assert not {s.snapshot_id for s in going} & {s.snapshot_id for s in reader.snapshots()}
        assert {f.path for f in upkeep.list_files()} >= before - moved, "a commit deletes nothing"
        with pytest.raises(CommitConflict):
            lake_round.commit(request)
        done = upkeep.delete_expired(going)
        assert set(done.snapshots) == {s.snapshot_id for s in going}
        assert done.bytes > 0
        assert upkeep.delete_expired(going) == replace(done, bytes=0)
        assert {f.path for f in upkeep.list_files()} & before - upkeep.references() <= needless
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    def test_totals_follow_the_head(self, lake: LakeStorage) -> None:
        log, _ = self._three_rounds(lake)
        totals = lake.open_reader(log.table).totals()
        assert (totals.rows, totals.data_files, totals.delete_files, totals.snapshots) == (3, 3, 0, 3)
        assert totals.bytes > 0

    @needs("snapshot_expiry", "upserts", "tags")
    def test_no_referenced_file_is_ever_deleted(self, lake: LakeStorage) -> None:
        """Rounds, leftovers, foreign rewrites, expiry and sweeps in turn; every retained snapshot stays readable."""
        log = self.make_log(
            lake, primary_key=("id",), properties={f"{lake.name}.history.expire.max-snapshot-age-ms": str(AGE_MS)}
        )
        upkeep, reader = lake.open_maintenance(log.table), lake.open_reader(log.table)
        for number in range(4):
            log.upsert(B0, row(number), row(0, f"version {number}"))
            LakeRound.plan(lake, log).write(B0)
            LakeRound.plan(lake, log).run()
            if number == 1:
                self.foreign_rewrite(lake, log.table)
            if number == 2:
                upkeep.expire([s.snapshot_id for s in upkeep.expirable(LATER_MS)[:1]])
            assert removal_of(lake, log).sweep().files > 0
            for shown in reader.snapshots():
                offsets = reader.load_snapshot(shown.snapshot_id)
                assert offsets is not None
                assert offsets.offsets is not None
                assert lake_rows(lake, log.table, shown.snapshot_id) == log.expected(offsets.offsets)

    def _three_rounds(self, lake: LakeStorage, **options: Any) -> tuple[ScriptedLog, list[SnapshotId]]:
        properties = {f"{lake.name}.history.expire.max-snapshot-age-ms": "1000"}
        log, ids = self.make_log(lake, properties=properties, **options), []
        for number in (1, 2, 3):
            if log.table.is_pk:
                log.upsert(B0, row(1, f"version {number}"), row(number * 10))
            else:
                log.append(B0, row(number))
            ids.append(LakeRound.plan(lake, log).run().snapshot_id)
        return log, ids
