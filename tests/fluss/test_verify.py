# SPDX-License-Identifier: Apache-2.0
"""`lakeward verify --fluss`: log tables by offset, PK tables by key, in depth against the cluster; damage is named."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent

from lakeward.model import Bucket, TablePath
from lakeward.protocol.heartbeat import TableFinished
from lakeward_testing.icebergforeign import IcebergForeignEngine
from lakeward_testing.waiting import wait_until
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, EVENTS, Append, Delete, MakeTable, Upsert
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

USERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("score", pa.int16())])


def verify(world: FlussWorld, name: str) -> tuple[int, dict[str, Any]]:
    """(exit code, the certificate)."""
    command = [
        sys.executable,
        "-m",
        "lakeward.cli",
        "verify",
        f"{DATABASE}.{name}",
        "--fluss",
        world.cluster.bootstrap,
        "--deep",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    (certificate,) = json.loads(done.stdout)
    return done.returncode, certificate


def kinds(certificate: dict[str, Any]) -> set[str]:
    return {f["kind"] for f in [*certificate["findings"], *(f for b in certificate["buckets"] for f in b["findings"])]}


def engine(world: FlussWorld, name: str) -> IcebergForeignEngine:
    return IcebergForeignEngine(world.lake(name).connection.catalog, TablePath(DATABASE, name))


def users(start: int, stop: int, step: int, words: str) -> Upsert:
    return Upsert(
        table="checked_pk", rows=[{"id": n, "name": f"{words} {n}", "score": n % 7} for n in range(start, stop, step)]
    )


def test_a_pk_table_by_key(world: FlussWorld, rounds: OnDemand) -> None:
    """With changes after the last round: the KV snapshot is newer than the lake, and is taken back."""
    world.produce(
        MakeTable(name="checked_pk", schema=USERS, primary_key=("id",), freshness="1h"), users(0, 300, 1, "first")
    )
    assert isinstance(rounds.run("checked_pk"), TableFinished)
    world.produce(users(0, 300, 3, "second"), Delete(table="checked_pk", keys=[{"id": n} for n in range(0, 300, 10)]))
    assert isinstance(rounds.run("checked_pk"), TableFinished)
    assert verify(world, "checked_pk")[0] == 0
    world.produce(users(0, 400, 4, "later"), Delete(table="checked_pk", keys=[{"id": n} for n in range(1, 300, 10)]))
    store, table = world.plugin.store(), world.table("checked_pk")
    ends = world.ends("checked_pk")
    for bucket, end in ends.items():
        wait_until(partial(is_taken_at, world, bucket, end), what="a KV snapshot of now")
    store.release_snapshots(table, "tests")
    code, certificate = verify(world, "checked_pk")
    assert (code, certificate["beyond"]) == (0, [])
    live = len(world.by_key("checked_pk"))
    assert sum(b["compared"] for b in certificate["buckets"]) == live == 270
    lost = drop_a_file(world, "checked_pk")
    code, certificate = verify(world, "checked_pk")
    assert (code, kinds(certificate)) == (1, {"missing"})
    assert certificate["totals"]["gaps"] == lost


def drop_a_file(world: FlussWorld, name: str) -> int:
    """Takes the newest data file out of the table; how many rows it had. PyIceberg plans no scan of a table with
    deletes by key.
    """
    table = engine(world, name).load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    entries = [e for m in snapshot.manifests(table.io) for e in m.fetch_manifest_entry(table.io)]
    newest = max(
        (e for e in entries if e.data_file.content == DataFileContent.DATA), key=lambda e: e.sequence_number or 0
    )
    with table.transaction() as change, change.update_snapshot().overwrite() as overwrite:
        overwrite.delete_data_file(newest.data_file)
    return int(newest.data_file.record_count)


def is_taken_at(world: FlussWorld, bucket: Bucket, end: int) -> bool:
    found = world.plugin.store().take_snapshot(world.table("checked_pk"), bucket, "tests")
    return found is not None and found.log_offset >= end


def test_a_log_table_by_offset(world: FlussWorld, rounds: OnDemand) -> None:
    rows = pa.RecordBatch.from_pylist([{"id": n, "name": f"event {n}"} for n in range(500)], schema=EVENTS)
    world.produce(MakeTable(name="checked", schema=EVENTS, freshness="1h"), Append(table="checked", rows=rows))
    assert isinstance(rounds.run("checked"), TableFinished)
    code, certificate = verify(world, "checked")
    assert (code, sum(b["compared"] for b in certificate["buckets"]), certificate["beyond"]) == (0, 500, [])
    engine(world, "checked").delete("id = 7")
    code, certificate = verify(world, "checked")
    assert (code, kinds(certificate)) == (1, {"missing"})


def test_all_tables_of_the_cluster(world: FlussWorld, rounds: OnDemand) -> None:
    """Tables whose lake is off are left out; one that was never tiered holds."""
    world.produce(MakeTable(name="checked_empty", schema=EVENTS, freshness="1h"))
    command = [sys.executable, "-m", "lakeward.cli", "verify", "--fluss", world.cluster.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert f"{DATABASE}.checked_empty: holds" in done.stdout, done.stderr
