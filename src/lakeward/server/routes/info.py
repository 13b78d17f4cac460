# SPDX-License-Identifier: Apache-2.0
"""`/api/v1/info`: what a client asks first."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lakeward.protocol.auth import Role
from lakeward.protocol.routes import INFO
from lakeward.server.admission.auth import caller, require
from lakeward.server.lakerights import seen_lakes
from lakeward.server.messages import answer
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    router = APIRouter(tags=["server"])

    @router.get(INFO, dependencies=[require(services.tokens, Role.READ)])
    def info(request: Request) -> JSONResponse:
        """Versions, and where Flight, the Iceberg catalog and the lakes are that tables of the token may be in."""
        info, seen = services.info(), seen_lakes(services, caller(request))
        lakes = {name: lake for name, lake in info.lakes.items() if name in seen}
        default = next(iter(services.coordinator.board.options.configured), None)
        return answer(replace(info, lakes=lakes, lake_options=info.lake_options if default in lakes else {}))

    return router
