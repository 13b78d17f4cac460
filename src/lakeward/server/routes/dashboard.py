# SPDX-License-Identifier: Apache-2.0
"""Data that the dashboard polls: tiles, tables and jobs in one answer, and one table's lag over the last hour."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from lakeward.model import TablePath
from lakeward.protocol.auth import ANONYMOUS, Role, Token
from lakeward.protocol.codec import encode
from lakeward.protocol.routes import DASHBOARD, LAG, LAGS
from lakeward.protocol.views import TableStatus
from lakeward.server.admission.auth import caller, require
from lakeward.server.feed.history import lag_name
from lakeward.server.messages import Side, answer
from lakeward.server.services import PageServices
from lakeward.server.show.shown import limit_status
from lakeward.server.show.tiles import Overview, make_tiles

POINTS, MAX_LAGS = 150, 200


def router(services: PageServices) -> APIRouter:
    router = APIRouter(tags=["dashboard"])
    may_read = [require(services.tokens, Role.READ)]

    @router.get(DASHBOARD, dependencies=may_read)
    def dashboard(request: Request, since: Annotated[str | None, Query(max_length=40)] = None) -> Response:
        """Tiles, tables and jobs as they are now; of the tables those that the token may use. `since`: only those that
        changed after that version, empty at first."""
        token = caller(request)
        seen = overview(services, token)
        if since is None:
            return answer(seen)
        if not token.tables:
            services.feed.take(seen["tables"], seen["now_ms"])
        else:
            status = services.source.status()
            services.feed.take(status.tables, status.now_ms)
        changes = services.feed.since(since, token.may_use)
        return packed(request, {**seen, **vars(changes), "count": len(seen["tables"])})

    @router.get(LAG, dependencies=may_read)
    def lag(table: str, side: Side) -> JSONResponse:
        """The lag of a table's side over the last hour, sampled every ten seconds and at commits: pairs of time and lag
        in milliseconds."""
        path = TablePath.parse(table)
        status = services.source.table_status(path, side)
        samples = services.history.lag(lag_name(path, status.side))
        return answer({"freshness_ms": status.freshness_ms, "samples": samples})

    @router.get(LAGS, dependencies=may_read)
    def lags(request: Request, table: Annotated[list[str], Query(max_length=MAX_LAGS)]) -> JSONResponse:
        """The lag curves of several tables (`db.t`, or `db.t/lake` for a further lake), thinned to the width of a row;
        an unknown table has none."""
        known = [name for name in table if caller(request).may_use(name.partition("/")[0])]
        return answer({"lags": {name: services.history.lag(name, points=POINTS) for name in known}})

    return router


def packed(request: Request, body: Any) -> Response:
    """A page asks every two seconds; its rows are much alike."""
    plain = json.dumps(encode(body), separators=(",", ":")).encode()
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(plain, media_type="application/json")
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(gzip.compress(plain, 6), media_type="application/json", headers=headers)


def overview(services: PageServices, token: Token = ANONYMOUS) -> dict[str, Any]:
    status, history = limit_status(services.source.status(), token), services.history
    sources = () if services.sources is None else tuple(services.sources.listed(token))
    trouble = [words for words in status.lakes.values() if words]
    seen = Overview(
        tables=status.tables,
        jobs=status.jobs,
        missing_jobs=status.jobs_missing,
        queue=history.figure("queue"),
        remote_bytes=history.figure("remote_bytes"),
        files=history.figure("files"),
        debt=history.figure("debt"),
        overdue_bytes=overdue_bytes(services, status.tables),
        knows_log=services.source.knows_log,
        lake_error=trouble[0] if trouble else None,
        bad_rows={path: rows for path, rows in services.stopped_sources().items() if token.may_use(path)},
        sources=sources,
        still=tuple(beat.name for beat in services.background() if not beat.is_well),
    )
    return {
        "now_ms": status.now_ms,
        "tiles": make_tiles(seen),
        "tables": status.tables,
        "jobs": status.jobs,
        "sources": sources,
        "adoptions": status.adoptions,
        "warnings": list(status.warnings),
        "actions": [*services.source.actions, *(() if services.live is None else ("live",))],
    }


def overdue_bytes(services: PageServices, tables: Iterable[TableStatus]) -> int:
    """Log past its TTL that is kept only because the lake does not have it: tables whose oldest waiting row is older
    than that.
    """
    late = {t.table_id: t for t in tables if t.lag_ms}
    if not late:
        return 0
    overdue = 0
    for sizes in services.source.sizes():
        table = late.get(sizes.table_id)
        if table is None or not sizes.remote_bytes:
            continue
        if sizes.ttl_ms and table.lag_ms > sizes.ttl_ms:
            overdue += sizes.remote_bytes
    return overdue
