# SPDX-License-Identifier: Apache-2.0
"""Leased commits: commits of rounds that carry their lease check and their report, so that both cost no call."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate, TableRequirement, TableUpdate

from lakeward.errors import InvalidRequest, LakewardError, LeaseLost
from lakeward.lake.iceberg.meta.summary import summary_of, totals_of
from lakeward.model import JobName, SnapshotId, fault_point
from lakeward.protocol.auth import Token
from lakeward.protocol.codec import decode
from lakeward.protocol.heartbeat import CommitAnswer, CommitReport, LeasedAnswer, LeasedCommit
from lakeward.spi import ROUND_KEY, TABLE_ID_KEY, CoordinatorClient

log = logging.getLogger(__name__)

_LOCKS = 64
"""One for the tables of equal hash: commits of different tables wait for each other in one case of 64."""


@dataclass(frozen=True)
class LeasedCommits:
    """`coordinator`: the catalog's configuration names it, so that only its own jobs send leased commits. `check_job`:
    raises `Forbidden` where a token may not speak for a job.

    One leased commit of a table runs at a time, from the lease check to the report: a request that is refused for its
    lease says for certain that no earlier copy of it can still take effect."""

    coordinator: CoordinatorClient
    check_job: Callable[[Token, JobName], None]
    locks: Sequence[AbstractContextManager[object]] = field(
        default_factory=lambda: [threading.Lock() for _ in range(_LOCKS)]
    )

    def read(self, body: Any, token: Token, updates: Sequence[TableUpdate]) -> LeasedCommit:
        """Raises `InvalidRequest`, `Forbidden`."""
        if not isinstance(body, dict):
            raise InvalidRequest(what="leased commit", reason="a JSON object is expected")
        leased = decode(LeasedCommit, body)
        token.check_all("leased commits")
        self.check_job(token, leased.check.job)
        named = [summary_of(u.snapshot) for u in updates if isinstance(u, AddSnapshotUpdate)]
        expected = (leased.check.round_id, leased.check.table_id)
        if [(keys.get(ROUND_KEY), keys.get(TABLE_ID_KEY)) for keys in named] != [expected]:
            reason = f"it needs one new snapshot, of round {expected[0]} of table {expected[1]}"
            raise InvalidRequest(what="leased commit", reason=reason)
        return leased

    def commit(
        self,
        catalog: Catalog,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
        leased: LeasedCommit,
    ) -> LeasedAnswer:
        """Raises `LeaseLost`, and as the catalog's commit."""
        check = leased.check
        with self.locks[hash(table.name()) % len(self.locks)]:
            verdict = self.coordinator.check_lease(check)
            if not verdict.held:
                name = ".".join(table.name())
                raise LeaseLost(table=name, round_id=check.round_id, job=check.job, reason=verdict.reason)
            began = time.monotonic()
            response = catalog.commit_table(table, requirements, (*updates, *_removals(verdict.expire)))
            fault_point("catalog.before-report", round_id=check.round_id)
            return self._record(leased.report, response.metadata, time.monotonic() - began)

    def _record(self, report: CommitReport, metadata: TableMetadata, commit_s: float) -> LeasedAnswer:
        totals = totals_of(metadata)
        figures = LeasedAnswer(
            lake_rows=totals.rows,
            lake_bytes=totals.bytes,
            lake_files=totals.data_files,
            lake_delete_files=totals.delete_files,
            lake_snapshots=totals.snapshots,
        )
        snapshot_id = SnapshotId(str(metadata.current_snapshot_id))
        finished = report.finished
        if finished is not None and finished.result is not None:
            phases = replace(finished.result.phases, commit_s=commit_s)
            result = replace(
                finished.result,
                snapshot_id=snapshot_id,
                phases=phases,
                lake_bytes=totals.bytes,
                lake_rows=totals.rows if totals.is_exact else None,
            )
            finished = replace(finished, result=result)
        landed = replace(
            report,
            snapshot_id=snapshot_id,
            finished=finished,
            lake_rows=figures.lake_rows,
            lake_bytes=figures.lake_bytes,
            lake_files=figures.lake_files,
            lake_delete_files=figures.lake_delete_files,
            lake_snapshots=figures.lake_snapshots,
        )
        return replace(figures, answer=self._report(landed))

    def _report(self, report: CommitReport) -> CommitAnswer | None:
        """None: the job reports it in a call of its own, and gets the error there."""
        try:
            return self.coordinator.commit(report)
        except LakewardError as error:
            log.warning("the report of round %s, which is in the lake, was not recorded: %s", report.round_id, error)
            return None


def _removals(snapshots: Sequence[SnapshotId]) -> tuple[TableUpdate, ...]:
    ids = [int(s) for s in snapshots]
    return (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}),) if ids else ()
