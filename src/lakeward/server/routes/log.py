# SPDX-License-Identifier: Apache-2.0
"""The newest lines of the server's log."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from lakeward.protocol.auth import Role
from lakeward.protocol.routes import LOG
from lakeward.server.admission.auth import require
from lakeward.server.feed.loglines import KEPT, LINES
from lakeward.server.messages import answer
from lakeward.server.services import Services

LEVELS = {"all": logging.NOTSET, "warning": logging.WARNING, "error": logging.ERROR}


def router(services: Services) -> APIRouter:
    router = APIRouter(tags=["server"])

    @router.get(LOG, dependencies=[require(services.tokens, Role.ADMIN, all_tables=True)])
    def log(
        limit: Annotated[int, Query(ge=1, le=KEPT)] = 200,
        level: Annotated[str, Query(pattern="^(all|warning|error)$")] = "all",
    ) -> JSONResponse:
        """Newest first, since the server started, five hundred at the most."""
        return answer({"lines": LINES.newest(limit, LEVELS[level])})

    return router
