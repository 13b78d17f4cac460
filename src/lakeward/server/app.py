# SPDX-License-Identifier: Apache-2.0
"""Builds the HTTP application: every resource of `routes`, typed errors as bodies, protocol and size checks
in front.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Iterable, Iterator

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from lakeward import __version__
from lakeward.errors import InvalidRequest, LakeFileBroken, LakewardError, to_wire
from lakeward.model import find_disk_trouble
from lakeward.protocol.routes import PROTOCOL, PROTOCOL_HEADER
from lakeward.server import routes
from lakeward.server.admission.gate import RequestGate
from lakeward.server.services import PageServices

log = logging.getLogger(__name__)

RETRY_AFTER_S = "1"
"""Retry-After of refusals under load: memory and quotas become free within seconds."""

BUSIEST = "rows"
PAGE_MODULES = ("dashboard", "health", "live", "metrics", "views", "web")
"""Modules of `routes` that also work without our own server."""


def create_app(services: PageServices, modules: Iterable[str] | None = None) -> FastAPI:
    """`modules` of `routes`; all of them need `Services`."""
    app = FastAPI(title="Lakeward", version=__version__, docs_url=None, redoc_url=None)
    for router in routers(services, modules):
        app.include_router(router)
    app.add_exception_handler(LakewardError, _typed)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(RecursionError, _too_much)
    app.add_exception_handler(OverflowError, _too_much)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(
        RequestGate,
        max_body_bytes=services.max_body_bytes,
        callers=services.callers,
        tokens=services.tokens,
        audit=services.audit,
        max_requests=services.max_requests,
        before_change=services.before_change,
    )
    return app


def routers(services: PageServices, modules: Iterable[str] | None = None) -> Iterator[APIRouter]:
    """One per module of `routes`; a resource is added by adding its file. The busiest comes first: a request is matched
    against all routers before its own, which took 128 us of CPU for rows and takes 14."""
    names = sorted((m.name for m in pkgutil.iter_modules(routes.__path__)), key=lambda name: (name != BUSIEST, name))
    for module in modules or names:
        yield importlib.import_module(f"{routes.__name__}.{module}").router(services)


def error_response(error: LakewardError) -> JSONResponse:
    headers = {PROTOCOL_HEADER: PROTOCOL}
    if error.retryable and error.http_status in (429, 503):
        headers["Retry-After"] = RETRY_AFTER_S
    return JSONResponse(to_wire(error), status_code=error.http_status, headers=headers)


def _typed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, LakewardError)
    if isinstance(error, LakeFileBroken):
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(find_disk_trouble(error) or error)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return error_response(
        InvalidRequest(what=f"{request.method} {request.url.path}", reason=f"{where}: {first['msg']}")
    )


def _plain(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    wire = to_wire(InvalidRequest(what=f"{request.method} {request.url.path}", reason=str(error.detail)))
    return JSONResponse(wire, status_code=error.status_code, headers=error.headers)


def _gone(request: Request, error: Exception) -> JSONResponse:
    """The peer left in the middle of its body: the answer is not read, and a peer must not be able to put stack traces
    into the log."""
    return error_response(InvalidRequest(what=f"{request.method} {request.url.path}", reason="the body ended early"))


def _too_much(request: Request, error: Exception) -> JSONResponse:
    """Values nest or grow only because somebody sent them so."""
    reason = "nested too deeply" if isinstance(error, RecursionError) else "a number is too large"
    return error_response(InvalidRequest(what=f"{request.method} {request.url.path}", reason=reason))


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    """The stack goes to the log, never to the peer."""
    full = find_disk_trouble(error)
    if full is not None:
        return error_response(full)
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    body = {
        "code": "internal",
        "message": "the server failed on this call; its log says why",
        "facts": {},
        "retryable": False,
    }
    return JSONResponse(body, status_code=500)
