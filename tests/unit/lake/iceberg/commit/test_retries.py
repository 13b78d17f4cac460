# SPDX-License-Identifier: Apache-2.0
"""`commit.retry.*` of the lake table bounds how often a round is prepared again, and never weakens what its commit
demands.
"""

from __future__ import annotations

from pathlib import Path

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import TablePath
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Faults
from lakeward_testing.icebergforeign import IcebergForeignEngine
from tests.kit.inprocess import InProcessLakeward

TABLE = "db.t"


def tries_of(tmp_path: Path, lake: IcebergLakeStorage, others: int, **properties: str) -> tuple[int, type]:
    """How often a round sent its commit while another engine came between so many times, and how it ended."""
    world = InProcessLakeward(tmp_path / "server", lake, ManualClock())
    world.create(TABLE, "id bigint", **properties)  # type: ignore[arg-type]
    world.coordinator.lakes.read_unseen()
    world.append(TABLE, [{"id": 1}])
    world.coordinator.ask_now(TablePath.parse(TABLE))
    handed = world.take(TABLE)
    assert handed is not None
    engine, sent = IcebergForeignEngine(lake.connection.catalog, TablePath.parse(TABLE)), list[int]()

    def come_between(_facts: object) -> bool:
        sent.append(1)
        if len(sent) <= others:
            engine.touch()
        return False

    with Faults() as faults:
        faults.arm("round.before-lake-commit", when=come_between)
        end = world.run(handed)
    world.close()
    return len(sent), type(end)


def test_without_a_bound_of_its_own_the_jobs_limit_counts(tmp_path: Path, lake: IcebergLakeStorage) -> None:
    assert tries_of(tmp_path, lake, 4) == (5, TableFinished)


def test_the_tables_number_of_retries(tmp_path: Path, lake: IcebergLakeStorage) -> None:
    assert tries_of(tmp_path, lake, 4, **{"iceberg.commit.retry.num-retries": "2"}) == (3, TableFailed)


def test_no_retry_at_all(tmp_path: Path, lake: IcebergLakeStorage) -> None:
    assert tries_of(tmp_path, lake, 1, **{"iceberg.commit.retry.num-retries": "0"}) == (1, TableFailed)


def test_the_tables_time(tmp_path: Path, lake: IcebergLakeStorage) -> None:
    assert tries_of(tmp_path, lake, 3, **{"iceberg.commit.retry.total-timeout-ms": "0"}) == (1, TableFailed)
