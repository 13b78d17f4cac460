# SPDX-License-Identifier: Apache-2.0
"""A snapshot's files with their deletes, worked out once."""

from __future__ import annotations

from pyiceberg.types import LongType

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.iceberg.scan.snapshotfiles import PlannedFile, plan_files
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite, row


def test_a_snapshot_is_planned_once_and_anew_under_another_schema(lake: IcebergLakeStorage) -> None:
    log = LakeSuite().make_log(lake)
    log.append(B0, row(0))
    LakeRound.plan(lake, log).run()

    def plan() -> list[PlannedFile]:
        table = lake.connection.load(log.table.path)
        snapshot = table.metadata.current_snapshot()
        assert snapshot is not None
        return plan_files(table.metadata, table.io, snapshot, ())

    (first,), (again,) = plan(), plan()
    assert first is again
    with lake.connection.load(log.table.path).update_schema() as update:
        update.add_column("more", LongType())
    (later,) = plan()
    assert "more" in later.schema.column_names
    assert later.file == first.file
