# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: Prometheus's text form."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from lakeward.protocol.auth import Role
from lakeward.protocol.routes import METRICS
from lakeward.server.admission.auth import require
from lakeward.server.services import PageServices
from lakeward.server.show.metrics import ServerCollector


def router(services: PageServices) -> APIRouter:
    router = APIRouter(tags=["metrics"])
    registry = CollectorRegistry()
    registry.register(ServerCollector(services))

    @router.get(METRICS, dependencies=[require(services.tokens, Role.READ, all_tables=True)])
    def metrics() -> Response:
        """Every figure of the server, its tables and its jobs."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router
