# SPDX-License-Identifier: Apache-2.0
"""Commits that take files away: what is live after them, what their manifests and summaries say."""

from __future__ import annotations

import pytest
from pyiceberg.manifest import ManifestEntryStatus

from lakeward.errors import LakeTampered
from lakeward.lake.core.change import ChangeKind
from lakeward.lake.core.committer import CoreCommitter
from lakeward.lake.iceberg.commit.change import IcebergChange, NewFile
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.commit.resolve import data_candidates
from lakeward.lake.iceberg.datafile.result import WriteResult
from lakeward.lake.iceberg.meta.manifests import CACHE, load_manifests, read_entries
from lakeward.lake.iceberg.meta.summary import summary_of
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.iceberg.scan.files import _INDEX
from lakeward.lake.iceberg.scan.snapshotfiles import _PLANS
from lakeward.model import RoundId, SnapshotId
from lakeward.spi import CommitProperties, LakeSnapshot, Precondition
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog


@pytest.fixture
def log(lake: IcebergLakeStorage) -> ScriptedLog:
    """Three rounds: one file each."""
    log = LakeSuite().make_log(lake)
    for number in range(3):
        log.append(B0, row(2 * number), row(2 * number + 1))
        LakeRound.plan(lake, log).run()
    return log


def replace_files(lake: IcebergLakeStorage, log: ScriptedLog, dropped: list[str], sequence: int | None) -> LakeSnapshot:
    """All rows of the log in one new file, in place of the dropped ones."""
    whole = LakeRound.plan(lake, log)
    whole.stops[B0] = 0
    whole.write(B0)
    committer, base = CoreCommitter(lake.open_table(log.table)), whole.base
    ground = base.loaded
    assert isinstance(ground, IcebergGround)
    (new,) = data_candidates(ground.table, [WriteResult.from_bytes(r) for r in whole.results])
    change = IcebergChange.of(
        data=(NewFile(new.spec_id, new.file, sequence),),
        drop=frozenset((path, None) for path in dropped),
        kind=ChangeKind.REWRITE,
        rows_gone=6,
    )
    properties = CommitProperties(round_id=RoundId(str(base.token)), epoch=1, job="j", offsets={})
    committable = committer.build(ground, base, properties, change)
    return committer.commit(committable, Precondition(table_id=log.table.table_id, token=base.token))


def live_paths(lake: IcebergLakeStorage, log: ScriptedLog) -> list[str]:
    return [f.path for f in lake.open_reader(log.table).files(head_of(lake, log))]


def head_of(lake: IcebergLakeStorage, log: ScriptedLog) -> SnapshotId:
    head = lake.open_reader(log.table).load_base().head
    assert head is not None
    return head


def test_dropped_files_leave_and_the_new_one_has_the_sequence_number_it_was_given(
    lake: IcebergLakeStorage, log: ScriptedLog
) -> None:
    before = live_paths(lake, log)
    landed = replace_files(lake, log, before, 2)
    reader = lake.open_reader(log.table)
    (kept,) = reader.files(landed.snapshot_id)
    for kept_values in (CACHE, _INDEX, _PLANS):
        kept_values.clear()
    (file,) = reader.files(landed.snapshot_id)
    assert (kept.sequence, file.sequence, file.record_count) == (2, 2, 6)
    assert file.path not in before
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    assert (landed.operation, landed.lake_rows, landed.offsets) == ("replace", 6, log.ends())
    assert reader.totals().data_files == 1


def test_what_left_is_named_in_the_manifests_of_the_snapshot_that_took_it(
    lake: IcebergLakeStorage, log: ScriptedLog
) -> None:
    before = live_paths(lake, log)
    landed = replace_files(lake, log, before, 2)
    table = lake.connection.load(log.table.path)
    head = table.metadata.current_snapshot()
    assert head is not None
    entries = [e for m in load_manifests(table.io, head) for e in read_entries(table.io, m)]
    gone = {e.data_file.file_path for e in entries if e.status == ManifestEntryStatus.DELETED}
    assert gone == set(before)
    assert {e.snapshot_id for e in entries} == {int(landed.snapshot_id)}
    assert {m.min_sequence_number for m in load_manifests(table.io, head) if m.added_files_count} == {2}
    summary = summary_of(head)
    assert (summary["deleted-data-files"], summary["added-data-files"], summary["total-data-files"]) == ("3", "1", "1")


def test_files_beside_a_dropped_one_stay_as_they_were(lake: IcebergLakeStorage, log: ScriptedLog) -> None:
    reader = lake.open_reader(log.table)
    gone, *stay = sorted(reader.files(head_of(lake, log)), key=lambda f: f.sequence)
    replace_files(lake, log, [gone.path], None)
    for kept_values in (CACHE, _INDEX, _PLANS):
        kept_values.clear()
    (*left, new) = sorted(reader.files(head_of(lake, log)), key=lambda f: f.sequence)
    assert (left, new.sequence) == (stay, 4)


def test_a_file_that_is_not_live_cannot_be_dropped(lake: IcebergLakeStorage, log: ScriptedLog) -> None:
    with pytest.raises(LakeTampered, match="not live"):
        replace_files(lake, log, ["file:///nowhere"], None)
