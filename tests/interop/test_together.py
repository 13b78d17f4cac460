# SPDX-License-Identifier: Apache-2.0
"""Rounds, ALTERs and expiry meet: through one connection, in several threads, on one table and on several."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakeward.errors import CommitConflict
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog

LATER_MS = 4_000_000_000_000


def test_rounds_of_different_tables_run_at_once(lake: IcebergLakeStorage) -> None:
    def run(number: int) -> ScriptedLog:
        log = LakeSuite().make_log(lake, f"t{number}", primary_key=("id",))
        for version in range(4):
            log.upsert(B0, *(row(i, f"version {version}") for i in range(5)))
            LakeRound.plan(lake, log).run()
        return log

    with ThreadPoolExecutor(4) as pool:
        logs = list(pool.map(run, range(4)))
    for log in logs:
        assert lake_rows(lake, log.table) == log.expected(log.ends())


@pytest.mark.parametrize("other", ["properties", "expiry"])
def test_a_round_is_not_lost_to_upkeep_of_its_own_table(lake: IcebergLakeStorage, other: str) -> None:
    log = LakeSuite().make_log(lake, properties={"iceberg.history.expire.max-snapshot-age-ms": "1"})
    upkeep, over = lake.open_maintenance(log.table), threading.Event()
    trouble: list[Exception] = []

    def meddle() -> None:
        number = 0
        while not over.is_set():
            number += 1
            try:
                if other == "properties":
                    lake.catalog().set_properties(log.table, {"owner": str(number)})
                else:
                    upkeep.expire([s.snapshot_id for s in upkeep.expirable(LATER_MS)])
            except CommitConflict:
                continue
            except Exception as error:  # noqa: BLE001 - shown by the test
                trouble.append(error)
                return

    thread = threading.Thread(target=meddle)
    thread.start()
    try:
        for number in range(15):
            log.append(B0, row(number))
            commit_as_a_driver(lambda: LakeRound.plan(lake, log))
    finally:
        over.set()
        thread.join()
    assert trouble == []
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def commit_as_a_driver(plan: Callable[[], LakeRound]) -> None:
    """Conflicts that no round of ours won mean: prepare again on the new head."""
    made = plan().write(B0)
    for _ in range(10):
        try:
            made.commit()
            return
        except CommitConflict as conflict:
            if conflict.lost:
                raise
    raise AssertionError("upkeep starved the round")
