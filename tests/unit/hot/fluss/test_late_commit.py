# SPDX-License-Identifier: Apache-2.0
"""A late commit of another job on a real Iceberg table: noticed before anything is planned, until main is
moved back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.errors import LakeOverlap
from lakeward.hot.fluss.coordinatorclient import HistoryChecks
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import TableInfo
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, OFFSETS_KEY, load_lake
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite, row


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[IcebergLakeStorage]:
    lake = load_lake(
        "iceberg",
        {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"},
    )
    assert isinstance(lake, IcebergLakeStorage)
    yield lake
    lake.connection.close()


def commit_as_flink(lake: IcebergLakeStorage, table: TableInfo, folder: Path, condition: str) -> None:
    """Rows of the table again, with the summary that the Flink job writes."""
    offsets = folder / f"t-{table.table_id}" / "metadata" / "x.offsets"
    offsets.parent.mkdir(parents=True, exist_ok=True)
    offsets.write_text('{"version":1,"table_id":0,"bucket_offsets":[2]}')
    loaded = lake.connection.load(table.path)
    loaded.append(
        loaded.scan(row_filter=condition).to_arrow(),
        snapshot_properties={COMMIT_USER_KEY: COMMIT_USER, OFFSETS_KEY: str(offsets)},
    )


def test_a_late_commit_is_noticed_until_main_is_moved_back(lake: IcebergLakeStorage, tmp_path: Path) -> None:
    log = LakeSuite().make_log(lake)
    log.append(B0, *(row(n) for n in range(5)))
    LakeRound.plan(lake, log).run()
    servers = FlussServers("127.0.0.1:1")
    checks = HistoryChecks(FlussStore(servers))
    reader = lake.open_reader(log.table)
    (ours,) = reader.snapshots()
    checks.check_overlap(log.table, reader, reader.snapshots())
    commit_as_flink(lake, log.table, tmp_path, "__offset < 2")
    for _ in range(2):
        with pytest.raises(LakeOverlap, match=f"Move main back to snapshot {ours.snapshot_id}") as found:
            checks.check_overlap(log.table, reader, reader.snapshots())
        assert (found.value.offset, found.value.committed) == (0, 5)
    lake.connection.load(log.table.path).manage_snapshots().set_current_snapshot(
        snapshot_id=int(ours.snapshot_id)
    ).commit()
    checks.check_overlap(log.table, reader, reader.snapshots())
    assert dict(reader.load_base().offsets) == {B0: 5}
