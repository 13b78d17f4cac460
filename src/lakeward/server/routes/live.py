# SPDX-License-Identifier: Apache-2.0
"""The `live` warehouse on a table's page."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from lakeward.model import TablePath
from lakeward.protocol.auth import Role
from lakeward.protocol.routes import LIVE
from lakeward.server.admission.auth import require
from lakeward.server.messages import answer
from lakeward.server.services import PageServices


def router(services: PageServices) -> APIRouter:
    router = APIRouter(tags=["tables"])

    @router.get(LIVE, dependencies=[require(services.tokens, Role.READ)])
    def live(table: str) -> JSONResponse:
        """Whether the table is in warehouse `live`, and what the newest answer of it names; no figures before the first
        load."""
        path, warehouse = TablePath.parse(table), services.live
        known = warehouse is not None and warehouse.find(path) is not None
        figures = warehouse.figures().get(path) if warehouse is not None and known else None
        return answer({"is_live": known, "figures": figures, "now_ms": services.clock.now_ms()})

    return router
