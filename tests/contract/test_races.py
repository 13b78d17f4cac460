# SPDX-License-Identifier: Apache-2.0
"""Two processes commit on one head of a table, again and again, in a folder and in a bucket: one wins, and no commit is
lost. Of formats whose commit is a file of its own."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import CommitConflict, LakeUnavailable
from lakeward.model import Bucket, TableId, new_table_id
from lakeward.spi import LakeStorage, load_lake
from lakeward_testing.faults import Faults
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.s3 import s3_store

FORMATS = pytest.mark.parametrize(
    "format", ["paimon", *(pytest.param(name, marks=pytest.mark.soak) for name in ("delta", "lance"))]
)
IN_FOLDERS = pytest.mark.parametrize(
    "format", ["paimon", *(pytest.param(name, marks=pytest.mark.soak) for name in ("delta", "lance", "hudi"))]
)
SUITE, LIMIT_S = LakeSuite(), 120


def race(
    format: str, options: dict[str, str], table_id: TableId, number: int, heads: int, lined_up: Any, told: Any
) -> None:
    """Both plan on one head, and wait for each other once more when each has found it unmoved."""
    lake, bucket = load_lake(format, options), (B0, B1)[number]
    log = ScriptedLog(SUITE.table_info(table_id=table_id))
    with Faults() as faults:
        faults.arm("lake.before-commit", times=None, when=lambda _: lined_up.wait(LIMIT_S) < 0)
        for at in range(heads):
            log.append(bucket, row(at))
            lined_up.wait(LIMIT_S)
            try:
                planned(lake, log, bucket).commit()
                told.put(at)
            except CommitConflict:
                continue


def planned(lake: LakeStorage, log: ScriptedLog, bucket: Bucket) -> LakeRound:
    """Written too: now and then the stand-in of S3 answers 500 to two who put at once."""
    while True:
        try:
            return LakeRound.plan(lake, log).write(bucket)
        except LakeUnavailable:
            continue


def run(format: str, options: dict[str, str], heads: int) -> None:
    lake, table_id = load_lake(format, options), new_table_id()
    log = SUITE.make_log(lake, table_id=table_id)
    spawn = multiprocessing.get_context("spawn")
    lined_up, told = spawn.Barrier(2), spawn.Queue()
    racers = [spawn.Process(target=race, args=(format, options, table_id, n, heads, lined_up, told)) for n in (0, 1)]
    for racer in racers:
        racer.start()
    wins = Counter(told.get(timeout=LIMIT_S) for _ in range(heads))
    for racer in racers:
        racer.join(LIMIT_S)
    assert [racer.exitcode for racer in racers] == [0, 0]
    assert told.empty()
    assert wins == Counter(range(heads))
    for at in range(heads):
        log.append(B0, row(at))
        log.append(B1, row(at))
    reader = lake.open_reader(log.table)
    numbers = [int(s.snapshot_id) for s in reader.snapshots()]
    if format == "hudi":  # its snapshots are named by their times
        assert len(set(numbers)) == heads
    else:
        assert numbers == [numbers[0] + n for n in range(heads)]
    assert lake_rows(lake, log.table) == log.expected(reader.load_base().offsets)


def in_folder(path: Path) -> dict[str, str]:
    return {"warehouse": str(path)}


@pytest.fixture
def bucket_options(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    with s3_store(is_atomic=True) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        yield {"warehouse": f"{store.new_bucket()}/warehouse", **store.options}


@IN_FOLDERS
def test_of_two_processes_on_one_head_one_wins(format: str, tmp_path: Path) -> None:
    run(format, in_folder(tmp_path), 4)


@pytest.mark.soak
@FORMATS
def test_of_two_processes_on_one_head_in_a_bucket_one_wins(format: str, bucket_options: dict[str, str]) -> None:
    run(format, bucket_options, 2)


@IN_FOLDERS
@pytest.mark.soak
def test_of_two_processes_on_a_few_hundred_heads_one_wins_each(format: str, tmp_path: Path) -> None:
    run(format, in_folder(tmp_path), 300)


@FORMATS
@pytest.mark.soak
def test_of_two_processes_on_many_heads_in_a_bucket_one_wins_each(format: str, bucket_options: dict[str, str]) -> None:
    run(format, bucket_options, 100)
