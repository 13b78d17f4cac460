# SPDX-License-Identifier: Apache-2.0
"""Protocol messages as HTTP bodies: reads a request into its dataclass, writes an answer from one."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse

from lakeward.errors import InvalidRequest
from lakeward.protocol.codec import decode, encode

T = TypeVar("T")


async def read_message(request: Request, kind: type[T]) -> T:
    """The request's body as a message. Raises `InvalidRequest` naming what does not fit."""
    raw = await request.body()
    try:
        body = json.loads(raw)
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidRequest(what=f"body of {request.method} {request.url.path}", reason=f"no JSON: {error}") from error
    return decode(kind, body)


def answer(message: Any, *, status: int = 200) -> JSONResponse:
    return JSONResponse(encode(message), status_code=status)


def described(kind: type[Any]) -> dict[str, Any]:
    """`openapi_extra` of a route that takes this message."""
    schema = {"type": "object", "title": kind.__name__, "description": (kind.__doc__ or "").strip()}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
