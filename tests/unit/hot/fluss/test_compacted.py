# SPDX-License-Identifier: Apache-2.0
"""A compaction's snapshot as Fluss's coordinator client sees it, on a real Iceberg table."""

from __future__ import annotations

from pathlib import Path

from lakeward.hot.fluss.coordinatorclient import HistoryChecks
from lakeward.hot.fluss.lakehistory import find_newest, read_ledger
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward.model import FLUSS_PARTITIONS, TableId
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, OFFSETS_KEY
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from tests.kit.iceberg.folder import folder_lake


def test_a_compaction_is_the_newest_snapshot_that_fluss_may_know(tmp_path: Path) -> None:
    with folder_lake(tmp_path) as lake:
        log = LakeSuite().make_log(lake, properties={FLUSS_PARTITIONS: "{}"}, table_id=TableId("7"))
        for number in range(3):
            log.append(B0, row(number))
            LakeRound.plan(lake, log).run()
        rewrite = LakeRewrite(lake=lake, table=log.table).write()
        extra = {OFFSETS_KEY: f"{tmp_path}/x.offsets"}
        prepared = rewrite.committer.prepare_rewrite(
            rewrite.results, rewrite.reader.load_base(), rewrite.round_id, extra
        )
        snapshot = rewrite.commit(prepared)
        assert (snapshot.summary[COMMIT_USER_KEY], snapshot.summary[OFFSETS_KEY]) == (COMMIT_USER, extra[OFFSETS_KEY])
        snapshots = rewrite.reader.snapshots()
        assert find_newest(str(log.table.path), snapshots, snapshot.snapshot_id) == snapshot.snapshot_id
        assert dict(rewrite.reader.load_base().offsets) == {B0: 3}
        ledger = read_ledger(log.table.table_id, snapshots, snapshot.snapshot_id)
        assert [(e.range.start, e.range.stop) for e in ledger] == [(0, 1), (1, 2), (2, 3)], "it moved no offset"
        servers = FlussServers("127.0.0.1:1")
        checks = HistoryChecks(FlussStore(servers))
        checks.check_overlap(log.table, rewrite.reader, snapshots)
