# SPDX-License-Identifier: Apache-2.0
"""The lake contract between foreign changes and our commits: no commit of ours, of whatever kind, makes rows of another
engine ours.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pytest

from lakeward.changelog.columns import without_prev
from lakeward.errors import CommitConflict, ForeignRowsFound, LakeHistoryGone, LakeRolledBack
from lakeward.model import OFFSET, Bucket, OffsetSet, new_round_id
from lakeward.spi import LakeStorage, Renewal, SupportsSnapshotNames
from lakeward_testing.lakes.removal import LATER_MS, removal_of
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, needs, row
from lakeward_testing.scripted_log import ScriptedLog

POLICY = "table.datalake.foreign-rows"
THEIRS = {**row(1, "theirs"), "__offset": 10**12}
COPY = {**row(1, "theirs"), "__offset": 0}
"""Another row under the address of one of ours."""

FOREIGN_CHANGES = {
    "append": ("insert",),
    "append, then another commit": ("insert", "touch"),
    "append, then a rewrite of all files": ("insert", "rewrite"),
    "append, then expiry": ("insert", "expire"),
    "append twice": ("insert", "insert"),
    "append of a row under an address of ours, then a rewrite": ("copy", "rewrite"),
    "overwrite of a row of ours": ("delete", "copy"),
    "delete of a row of ours, and an append": ("delete", "insert"),
}
STOPS = (ForeignRowsFound, LakeHistoryGone, LakeRolledBack)
"""How rounds stop; not the first way where another engine has removed the history since our newest commit."""

COMMITS = ("round", "compaction", "fence", "sweep", "expiry", "tag")


@dataclass
class _Play:
    """One table with rounds, and the commits of ours that a test may make on it."""

    lake: LakeStorage
    log: ScriptedLog

    def start(self) -> None:
        for name in ("a", "b"):
            self.log.upsert(B0, row(1, name), row(2, name))
            self.log.upsert(B1, row(11, name), row(12, name))
            LakeRound.plan(self.lake, self.log).run()

    def round(self) -> None:
        self.log.upsert(B0, row(2, "new"))
        LakeRound.plan(self.lake, self.log).run()

    def compaction(self) -> None:
        rewrite = LakeRewrite(lake=self.lake, table=self.log.table).write()
        if (prepared := rewrite.prepare()).committable is not None:
            rewrite.commit(prepared)

    def fence(self) -> None:
        base = self.lake.open_reader(self.log.table).load_base()
        self.lake.open_maintenance(self.log.table).fence(base, new_round_id(), epoch=1)

    def sweep(self) -> None:
        """Orphan removal, which fences, beside the files of a round that failed."""
        with suppress(ForeignRowsFound):
            LakeRound.plan(self.lake, self.log).write(B1, batches=1)
        removal_of(self.lake, self.log).sweep()

    def expiry(self) -> None:
        upkeep = self.lake.open_maintenance(self.log.table)
        upkeep.expire([s.snapshot_id for s in upkeep.expirable(LATER_MS)])

    def tag(self) -> None:
        head = self.lake.open_reader(self.log.table).load_snapshot()
        upkeep = self.lake.open_maintenance(self.log.table)
        if head is not None and isinstance(upkeep, SupportsSnapshotNames):
            upkeep.tag("lakeward-cut-1", head.snapshot_id)

    def resync(self) -> None:
        """As a round compares a bucket: rows that the lake lacks, has too many, or has otherwise."""
        log, lake = self.log, self.lake
        base = lake.open_reader(log.table).load_base_as_is()
        assert base.head is not None
        again = LakeRound.plan(lake, log, generation=base.generation + 1, planned_on=base)
        want, have, renewed = log.expected(log.ends()), lake_rows(lake, log.table), dict[Bucket, OffsetSet]()
        for bucket in (B0, B1):
            live = {offset: values for b, offset, values in want if b == bucket}
            there = [(offset, values) for b, offset, values in have if b == bucket]
            right = {o for o, values in there if live.get(o) == values and [p for p, _ in there].count(o) == 1}
            gone = OffsetSet(sorted({o for o, _ in there} - set(live)))
            renewed[bucket] = OffsetSet(sorted({o for o, _ in there} & set(live) - right))
            writer = lake.open_writer(again.task(bucket, 0, log.end(bucket)))
            batch = without_prev(log.batch(bucket, 0, log.end(bucket)))
            lacking = [o in live and o not in right for o in batch.column(OFFSET).to_pylist()]
            writer.write(batch.filter(pa.array(lacking)).drop_columns(["__change_type"]))
            again.take(bucket, log.end(bucket), writer.complete(), gone)
        again.renewal = Renewal(head=base.head, offsets=renewed)
        again.commit()


class ForeignChangeContract(LakeSuite):
    def play(self, lake: LakeStorage, policy: str = "stop", name: str = "t") -> _Play:
        play = _Play(lake, self.make_log(lake, name, primary_key=("id",), properties={POLICY: policy}))
        play.start()
        return play

    def change(self, lake: LakeStorage, log: ScriptedLog, *kinds: str) -> None:
        does: dict[str, Callable[[], object]] = {
            "insert": lambda: self.foreign_insert(lake, log.table, [THEIRS]),
            "copy": lambda: self.foreign_insert(lake, log.table, [COPY]),
            "delete": lambda: self.foreign_delete(lake, log.table, 1),
            "touch": lambda: self.foreign_commit(lake, log.table),
            "rewrite": lambda: self.foreign_rewrite(lake, log.table),
            "expire": lambda: self.foreign_expire(lake, log.table),
        }
        for kind in kinds:
            does[kind]()

    @needs("upserts", "rewrites")
    @pytest.mark.parametrize("commit", COMMITS)
    @pytest.mark.parametrize("change", FOREIGN_CHANGES)
    def test_rows_of_another_engine_never_become_ours(self, lake: LakeStorage, change: str, commit: str) -> None:
        """Whatever we commit after it, twice; then a round finds them still."""
        play = self.play(lake)
        self.change(lake, play.log, *FOREIGN_CHANGES[change])
        for _ in range(2):
            with suppress(*STOPS):
                getattr(play, commit)()
        play.log.upsert(B0, row(2, "newer"))
        with pytest.raises(STOPS):
            LakeRound.plan(lake, play.log).run()

    @needs("upserts", "rewrites")
    @pytest.mark.parametrize("commit", COMMITS)
    def test_rows_of_another_engine_go_where_the_table_says_so(self, lake: LakeStorage, commit: str) -> None:
        play = self.play(lake, "remove")
        self.change(lake, play.log, "insert", "touch")
        for _ in range(2):
            getattr(play, commit)()
        play.round()
        assert lake_rows(lake, play.log.table) == play.log.expected(play.log.ends())

    @needs("upserts", "rewrites")
    @pytest.mark.parametrize("commit", COMMITS)
    def test_files_that_another_engine_rewrote_stay_what_they_are(self, lake: LakeStorage, commit: str) -> None:
        play = self.play(lake)
        self.change(lake, play.log, "rewrite", "touch")
        getattr(play, commit)()
        self.change(lake, play.log, "rewrite")
        getattr(play, commit)()
        play.round()
        assert lake_rows(lake, play.log.table) == play.log.expected(play.log.ends())

    @needs("upserts", "rewrites")
    @pytest.mark.parametrize("commit", COMMITS)
    def test_a_row_that_another_engine_deleted_stays_deleted_until_it_is_written_again(
        self, lake: LakeStorage, commit: str
    ) -> None:
        play = self.play(lake)
        if not self.foreign_delete(lake, play.log.table, 11):
            return
        for _ in range(2):
            getattr(play, commit)()
        play.round()
        rows = play.log.expected(play.log.ends())
        assert lake_rows(lake, play.log.table) == [r for r in rows if r[2]["id"] != 11]
        play.log.upsert(B1, row(11, "again"))
        LakeRound.plan(lake, play.log).run()
        assert lake_rows(lake, play.log.table) == play.log.expected(play.log.ends())

    @needs("upserts", "rewrites")
    @pytest.mark.parametrize("commit", COMMITS)
    def test_a_rollback_is_never_built_on(self, lake: LakeStorage, commit: str) -> None:
        play = self.play(lake)
        first = lake.open_reader(play.log.table).snapshots()[0].snapshot_id
        self.roll_back(lake, play.log.table, first)
        with suppress(LakeRolledBack, CommitConflict):
            getattr(play, commit)()
        with pytest.raises(LakeRolledBack):
            lake.open_reader(play.log.table).load_base()

    @needs("upserts", "rewrites")
    def test_a_resync_that_is_under_way_is_said_by_every_commit_until_it_is_through(self, lake: LakeStorage) -> None:
        play = self.play(lake)
        reader = lake.open_reader(play.log.table)
        assert not reader.load_base().is_resyncing
        play.log.upsert(B0, row(2, "first"))
        LakeRound.plan(lake, play.log, generation=1, is_resyncing=True).run()
        assert reader.load_base().is_resyncing
        for commit in COMMITS:
            getattr(play, commit)()
            base = reader.load_base()
            assert (base.is_resyncing, base.generation) == (True, 1), commit
        play.log.upsert(B0, row(2, "last"))
        LakeRound.plan(lake, play.log, generation=2).run()
        assert (reader.load_base().is_resyncing, reader.load_base().generation) == (False, 2)
        for commit in COMMITS:
            getattr(play, commit)()
            assert not reader.load_base().is_resyncing, commit

    @needs("upserts", "positions")
    def test_a_resync_takes_them_out(self, lake: LakeStorage) -> None:
        for number, (change, kinds) in enumerate(FOREIGN_CHANGES.items()):
            play = self.play(lake, name=f"t{number}")
            self.change(lake, play.log, *kinds)
            play.resync()
            assert lake_rows(lake, play.log.table) == play.log.expected(play.log.ends()), change
            play.round()
            assert lake_rows(lake, play.log.table) == play.log.expected(play.log.ends()), change

    @needs("upserts")
    def test_rows_that_come_after_the_comparison_of_a_resync_are_taken_out(self, lake: LakeStorage) -> None:
        play = self.play(lake)
        base = lake.open_reader(play.log.table).load_base_as_is()
        assert base.head is not None
        again = LakeRound.plan(lake, play.log, generation=1, planned_on=base)
        again.stops.update(play.log.ends())
        again.renewal = Renewal(head=base.head, offsets={B0: OffsetSet(), B1: OffsetSet()})
        self.change(lake, play.log, "insert")
        again.commit()
        assert lake_rows(lake, play.log.table) == play.log.expected(play.log.ends())
