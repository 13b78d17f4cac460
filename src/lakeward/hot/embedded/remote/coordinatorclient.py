# SPDX-License-Identifier: Apache-2.0
"""The coordinator of a Lakeward server as jobs and readers reach it: `spi.coordinator.CoordinatorClient` over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from lakeward.hot.embedded.remote.http import ServerConnection
from lakeward.model import DEFAULT_SIDE, Intent, LeaseId, LedgerEntry, RoundId, SideName, SnapshotId, TableId, TablePath
from lakeward.protocol import routes
from lakeward.protocol.codec import decode
from lakeward.protocol.heartbeat import (
    CommitAnswer,
    CommitReport,
    Committed,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseCheck,
    LeaseVerdict,
)
from lakeward.protocol.operate import LedgerAnswer
from lakeward.protocol.readplan import ReadPlan
from lakeward.protocol.routes import READ_PLANS_BY_POST, is_older
from lakeward.protocol.tables import CutStatus
from lakeward.spi import CoordinatorClient, FrozenTable

LEDGER_PAGE = 10_000


class HttpCoordinatorClient(CoordinatorClient):
    def __init__(self, server: ServerConnection) -> None:
        self.server = server

    @property
    def coordinator_id(self) -> str | None:
        return self.server.info().coordinator_id

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        return self.server.call(HeartbeatAnswer, "POST", routes.HEARTBEAT, request)

    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        return self.server.call(LeaseVerdict, "POST", routes.LEASE_CHECK, check)

    def committed(self, path: TablePath, side: SideName | None = None) -> Committed:
        return self.server.call(Committed, "GET", routes.COMMITTED.format(table=path), params=_given(side=side))

    def commit(self, report: CommitReport) -> CommitAnswer:
        return self.server.call(CommitAnswer, "POST", routes.COMMITS, report)

    def knows_round(self, table_id: TableId, round_id: RoundId, side: SideName = DEFAULT_SIDE) -> bool:
        known_round = routes.KNOWN_ROUND.format(table_id=table_id, round_id=round_id)
        return bool(self.server.ask("GET", known_round, params=_given(side=side))["known"])

    def record_intent(self, intent: Intent) -> None:
        self.server.ask("POST", routes.INTENTS, intent)

    def begin_round(self, intent: Intent, path: TablePath) -> FrozenTable | None:
        """Records the intent, and freezes the table in the same call; None: a server before 0.2 did only the first."""
        answer = self.server.ask("POST", routes.INTENTS, intent, params={"freeze": str(path)})
        return None if answer is None else decode(FrozenTable, answer)

    def abandon_intent(self, round_id: RoundId, *, unused: bool = False) -> None:
        params = {"unused": "true"} if unused else None
        self.server.ask("POST", routes.ABANDON_INTENT.format(round_id=round_id), params=params)

    def read_plan(
        self, path: TablePath, *, lease_s: float = 60.0, at_least: str | None = None, side: SideName | None = None
    ) -> ReadPlan:
        params = _given(lease_s=lease_s, at_least=at_least, side=side)
        method = "GET" if is_older(self.server.info().protocol, READ_PLANS_BY_POST) else "POST"
        return self.server.call(ReadPlan, method, routes.READ_PLAN.format(table=path), params=params)

    def load_cut(self, name: str) -> CutStatus:
        return self.server.call(CutStatus, "GET", routes.CUT.format(cut=quote(name, safe="")))

    def renew_read(self, lease_id: LeaseId, lease_s: float, snapshot_id: SnapshotId | None = None) -> None:
        params = _given(lease_s=lease_s, snapshot=snapshot_id)
        self.server.ask("POST", routes.RENEW_READ.format(lease_id=lease_id), params=params)

    def release_read(self, lease_id: LeaseId) -> None:
        self.server.ask("DELETE", routes.RELEASE_READ.format(lease_id=lease_id))

    def ledger(self, path: TablePath, side: SideName | None = None) -> Sequence[LedgerEntry]:
        entries: list[LedgerEntry] = []
        before: int | None = None
        while True:
            params = _given(limit=LEDGER_PAGE, before=before, side=side)
            page = self.server.call(LedgerAnswer, "GET", routes.LEDGER.format(table=path), params=params)
            entries[:0] = page.entries
            before = page.next_before
            if before is None:
                return entries


def _given(**params: Any) -> dict[str, Any]:
    """The arguments that have a value; a side as text."""
    return {k: str(v) if isinstance(v, SideName) else v for k, v in params.items() if v is not None}
