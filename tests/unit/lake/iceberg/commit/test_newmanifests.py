# SPDX-License-Identifier: Apache-2.0
"""How many manifests a reader of the head opens: each commit writes small ones anew with its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lakeward.lake.iceberg.meta.manifests import CACHE, live_count, load_entries, load_manifests
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.folder import folder_lake


def manifests(lake: IcebergLakeStorage, log: ScriptedLog) -> Counter[str]:
    table = lake.connection.load(log.table.path)
    return Counter(m.content.name for m in load_manifests(table.io, table.metadata.current_snapshot()))


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_head_has_few_manifests(tmp_path: Path, version: str) -> None:
    with folder_lake(tmp_path) as lake:
        log = LakeSuite().make_log(lake, primary_key=("id",), properties={"iceberg.format-version": version})
        for number in range(12):
            log.upsert(B0, row(number), row(number + 1))
            LakeRound.plan(lake, log).run()
            assert max(manifests(lake, log).values()) <= 2
        CACHE.clear()  # what the files say, not what was remembered of them
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        LakeRewrite(lake=lake, table=log.table).run()
        assert manifests(lake, log) == {"DATA": 1, "DELETES": 1}
        table = lake.connection.load(log.table.path)
        live = {
            m.content.name: (live_count(m), m.deleted_files_count)
            for m in load_manifests(table.io, table.metadata.current_snapshot())
        }
        assert live["DATA"] == (1, 12)
        assert live["DELETES"][0] == 0
        log.upsert(B0, row(0, "late"))
        LakeRound.plan(lake, log).run()
        assert manifests(lake, log) == {"DATA": 1, "DELETES": 1}
        CACHE.clear()
        assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_entries_that_were_remembered_are_those_of_the_file(tmp_path: Path) -> None:
    with folder_lake(tmp_path) as lake:
        log = LakeSuite().make_log(lake, primary_key=("id",))
        for number in range(3):
            log.upsert(B0, row(number), row(number + 1))
            LakeRound.plan(lake, log).run()
        table = lake.connection.load(log.table.path)
        found = []
        for is_cleared in (False, True):
            if is_cleared:
                CACHE.clear()
            entries = [
                e
                for m in load_manifests(table.io, table.metadata.current_snapshot())
                for e in load_entries(table.io, m)
            ]
            found.append(
                [(e.snapshot_id, e.sequence_number, e.file_sequence_number, e.data_file.file_path) for e in entries]
            )
        assert found[0] == found[1]
        assert len({sequence for _, sequence, _, _ in found[0]}) == 3
