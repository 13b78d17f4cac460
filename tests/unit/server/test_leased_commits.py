# SPDX-License-Identifier: Apache-2.0
"""Leased commits at the Iceberg catalog's door: who may send one, what it must hold, and what a refusal leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakeward.errors import Forbidden, LedgerGap
from lakeward.model import Epoch, InstanceId, JobName, OffsetMap, RoundId, SnapshotId, TableId
from lakeward.protocol.auth import Role, Token, TokenSet
from lakeward.protocol.codec import encode
from lakeward.protocol.heartbeat import LEASED, CommitReport, LeaseCheck, LeasedCommit
from lakeward.server.iceberg.catalog import iceberg_router
from lakeward.server.iceberg.leased import LeasedCommits
from lakeward.spi import ROUND_KEY, TABLE_ID_KEY
from lakeward_testing.waiting import wait_until
from tests.unit.tiering.world import BookCoordinator, make_table

TABLE_ID, ROUND = TableId("11111111-1111-4111-8111-111111111111"), RoundId("r1")
CHECK = LeaseCheck(job=JobName("j"), instance=InstanceId("i"), table_id=TABLE_ID, epoch=Epoch(1), round_id=ROUND)
REPORT = CommitReport(
    job=CHECK.job,
    instance=CHECK.instance,
    table_id=TABLE_ID,
    epoch=CHECK.epoch,
    round_id=ROUND,
    snapshot_id=None,
    offsets=OffsetMap(),
)
SECRETS = {role: f"{role}-secret-{'x' * 20}" for role in ("job", "read", "other")}


class WatchedLock:
    """Says when a caller has to wait for it."""

    def __init__(self) -> None:
        self._lock, self.has_waiter = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.has_waiter.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Door:
    def __init__(self, catalog: SqlCatalog) -> None:
        self.coordinator, self.app, self.lock = BookCoordinator(make_table()), FastAPI(), WatchedLock()
        leased = LeasedCommits(self.coordinator, check_job, [self.lock])
        tokens = [f"j:job:{SECRETS['job']}", f"r:read:{SECRETS['read']}", f"o:job:{SECRETS['other']}"]
        self.app.include_router(iceberg_router(catalog, TokenSet.parse(tokens), leased=leased))

    def commit(self, leased: Any, number: int = 1, round_id: str = ROUND, token: str = "job") -> httpx.Response:
        snapshot = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": 2**42 + number,
            "manifest-list": "file:///nowhere",
            "summary": {"operation": "append", TABLE_ID_KEY: TABLE_ID, ROUND_KEY: round_id, "total-records": "7"},
        }
        main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number}
        body = {"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": snapshot}, main]}
        return asyncio.run(self._post({**body, LEASED: leased}, {"Authorization": f"Bearer {SECRETS[token]}"}))

    async def _post(self, body: Any, headers: dict[str, str]) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.post("/iceberg/v1/namespaces/s/tables/a", json=body, headers=headers)


def check_job(token: Token, job: JobName) -> None:
    if token.name != job:
        raise Forbidden(token_name=token.name, role=str(Role.JOB), what=f"job {job}", needed="its own name")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("s")
    catalog.create_table("s.a", Schema(NestedField(1, "n", LongType(), required=False)))
    yield catalog
    catalog.close()


def head(catalog: SqlCatalog) -> int | None:
    return catalog.load_table("s.a").metadata.current_snapshot_id


def test_it_lands_and_is_reported_with_the_lakes_figures(catalog: SqlCatalog) -> None:
    door = Door(catalog)
    answered = door.commit(encode(LeasedCommit(check=CHECK, report=REPORT)))
    assert answered.status_code == 200, answered.text
    landed = answered.json()[LEASED]
    assert (landed["lake_rows"], landed["lake_snapshots"], landed["answer"]["first"]) == (7, 1, True)
    (report,) = door.coordinator.reports
    assert (report.snapshot_id, report.lake_rows) == (SnapshotId("1"), 7)
    assert head(catalog) == 1


def test_without_the_lease_nothing_changes(catalog: SqlCatalog) -> None:
    door = Door(catalog)
    door.coordinator.holder = None
    refused = door.commit(encode(LeasedCommit(check=CHECK, report=REPORT)))
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "LeaseLost")
    assert head(catalog) is None
    assert door.coordinator.reports == []


def test_a_report_that_fails_leaves_the_commit_and_no_answer(catalog: SqlCatalog) -> None:
    door = Door(catalog)

    def fail() -> None:
        raise LedgerGap(table="t", bucket="0", start=1, stop=2, ledger_end=0)

    door.coordinator.before_commit = fail
    answered = door.commit(encode(LeasedCommit(check=CHECK, report=REPORT)))
    assert (answered.status_code, answered.json()[LEASED]["answer"]) == (200, None)
    assert head(catalog) == 1


def test_what_it_may_not_hold_is_refused_before_the_lease_is_checked(catalog: SqlCatalog) -> None:
    door = Door(catalog)
    door.coordinator.before_check = lambda: pytest.fail("the lease was checked")
    whole = encode(LeasedCommit(check=CHECK, report=REPORT))
    for leased, round_id in (
        ("text", ROUND),
        ({}, ROUND),
        (whole, "another round"),
        ({**whole, "report": encode(replace(REPORT, job=JobName("k")))}, ROUND),
    ):
        assert door.commit(leased, round_id=round_id).status_code == 400, leased
    assert door.commit(whole, token="read").status_code == 403
    assert door.commit(whole, token="other").status_code == 403
    assert head(catalog) is None


def test_one_at_a_time_from_the_check_to_the_report(catalog: SqlCatalog) -> None:
    """A second request arrives while the lease of the first is checked; it is checked once the first is reported."""
    door, steps, answers = Door(catalog), list[str](), list[int]()
    whole, second_checked = encode(LeasedCommit(check=CHECK, report=REPORT)), threading.Event()
    second = threading.Thread(target=lambda: answers.append(door.commit(whole, number=2).status_code))

    def on_check() -> None:
        steps.append("check")
        if len(steps) > 1:
            second_checked.set()
            return
        second.start()
        wait_until(lambda: door.lock.has_waiter.is_set() or second_checked.is_set(), limit_s=60)

    door.coordinator.before_check = on_check
    door.coordinator.before_commit = lambda: steps.append("report")
    answers.append(door.commit(whole, number=1).status_code)
    second.join(60)
    assert steps == ["check", "report", "check", "report"]
    assert answers == [200, 200]
