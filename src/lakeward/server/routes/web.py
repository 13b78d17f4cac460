# SPDX-License-Identifier: Apache-2.0
"""The dashboard's own files. They hold no data, so no token is asked for here."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response

from lakeward.errors import InvalidRequest
from lakeward.server.services import PageServices

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"


def load_files() -> dict[str, tuple[bytes, str]]:
    """Every file of the page, read once: what is not in this table cannot be asked for."""
    folder = files("lakeward.server").joinpath("web")
    pages = {}
    for entry in folder.iterdir():
        suffix = entry.name[entry.name.rfind(".") :]
        if suffix in TYPES:
            pages[entry.name] = (entry.read_bytes(), TYPES[suffix])
    return pages


def router(services: PageServices) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    held = load_files()

    def answer(name: str) -> Response:
        if name not in held:
            raise InvalidRequest(what=f"/web/{name}", reason="the dashboard has no such file")
        body, kind = held[name]
        headers = {"Cache-Control": "no-cache", "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
        return Response(body, media_type=kind, headers=headers)

    @router.get("/")
    def index() -> Response:
        return answer("index.html")

    @router.get("/web/{name}")
    def file(name: str) -> Response:
        return answer(name)

    return router
