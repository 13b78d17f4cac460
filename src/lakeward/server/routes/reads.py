# SPDX-License-Identifier: Apache-2.0
"""Read plans and the leases that hold what they name."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from lakeward.errors import InvalidRequest
from lakeward.model import LeaseId, SideName, SnapshotId, TablePath
from lakeward.protocol.auth import Role
from lakeward.protocol.routes import PROTOCOL_HEADER, READ_PLAN, READ_PLANS_BY_POST, RELEASE_READ, RENEW_READ, is_older
from lakeward.server.admission.auth import caller, require
from lakeward.server.admission.readquota import ReadQuotas
from lakeward.server.messages import Side, answer
from lakeward.server.services import Services

Seconds = Annotated[float, Query(gt=0, allow_inf_nan=False)]


def router(services: Services) -> APIRouter:
    router, coordinator = APIRouter(tags=["reads"]), services.coordinator
    may_read, quotas = [require(services.tokens, Role.READ)], ReadQuotas(services.max_reads, services.clock.now_ms)

    def plan_for(
        request: Request, table: str, side: SideName | None, lease_s: float, at_least: str | None
    ) -> JSONResponse:
        token = caller(request).name
        quotas.check(token)
        plan = coordinator.read_plan(TablePath.parse(table), lease_s=lease_s, at_least=at_least, side=side)
        quotas.note(token, plan.lease_id, plan.lease_ends_at_ms)
        services.consumers.note_read(plan.table.table_id)
        return answer(plan)

    @router.post(READ_PLAN, dependencies=may_read)
    def read_plan(
        request: Request, table: str, side: Side, lease_s: Seconds = 60.0, at_least: str | None = None
    ) -> JSONResponse:
        """A readable snapshot, its offsets and the hot tails, held by a lease: all that a union read needs."""
        return plan_for(request, table, side, lease_s, at_least)

    @router.get(READ_PLAN, dependencies=may_read, include_in_schema=False)
    def older_read_plan(
        request: Request, table: str, side: Side, lease_s: Seconds = 60.0, at_least: str | None = None
    ) -> JSONResponse:
        """For clients of the minor version before it was a POST."""
        if not is_older(request.headers.get(PROTOCOL_HEADER), READ_PLANS_BY_POST):
            raise InvalidRequest(what=f"GET {request.url.path}", reason="a read plan takes a lease: ask for it by POST")
        return plan_for(request, table, side, lease_s, at_least)

    @router.post(RENEW_READ, dependencies=may_read, status_code=204)
    def renew_read(request: Request, lease_id: str, lease_s: Seconds = 60.0, snapshot: str | None = None) -> Response:
        """`snapshot` moves the lease to an older snapshot, for a read of history."""
        quotas.check_owner(caller(request), LeaseId(lease_id))
        coordinator.renew_read(LeaseId(lease_id), lease_s, None if snapshot is None else SnapshotId(snapshot))
        quotas.renew(caller(request).name, LeaseId(lease_id), lease_s)
        return Response(status_code=204)

    @router.delete(RELEASE_READ, dependencies=may_read, status_code=204)
    def release_read(request: Request, lease_id: str) -> Response:
        """Ends a read's lease, by the token that took it. Safe to repeat."""
        quotas.check_owner(caller(request), LeaseId(lease_id))
        coordinator.release_read(LeaseId(lease_id))
        quotas.release(LeaseId(lease_id))
        return Response(status_code=204)

    return router
