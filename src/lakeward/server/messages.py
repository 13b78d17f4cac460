# SPDX-License-Identifier: Apache-2.0
"""Protocol messages as HTTP bodies: reads a request into its dataclass, writes an answer from one."""

from __future__ import annotations

import json
from dataclasses import is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from fastapi import Request
from fastapi.responses import JSONResponse

from lakeward.errors import InvalidRequest
from lakeward.protocol.codec import decode, encode

T = TypeVar("T")


async def read_message(request: Request, kind: type[T], *, exact: bool = False) -> T:
    """The request's body as a message. Raises `InvalidRequest` naming what does not fit; `exact`: also a field that
    the message does not have, where skipping it would report a success that changed nothing."""
    raw = await request.body()
    try:
        body = json.loads(raw)
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidRequest(what=f"body of {request.method} {request.url.path}", reason=f"no JSON: {error}") from error
    if exact:
        check_fields(kind, body, kind.__name__)
    return decode(kind, body)


def check_fields(kind: Any, body: Any, where: str) -> None:
    """Raises `InvalidRequest` for a field that the message, or one inside it, does not have."""
    if isinstance(body, list):
        for element in body:
            check_fields(next(iter(get_args(kind)), Any), element, where)
    if not is_dataclass(kind) or not isinstance(body, dict):
        return
    hints = get_type_hints(kind)
    for name, value in body.items():
        if name not in hints:
            raise InvalidRequest(what=f"{where}.{name}", reason=f"no such field; there are {', '.join(hints)}")
        check_fields(hints[name], value, f"{where}.{name}")


def answer(message: Any, *, status: int = 200) -> JSONResponse:
    return JSONResponse(encode(message), status_code=status)


def described(kind: type[Any]) -> dict[str, Any]:
    """`openapi_extra` of a route that takes this message."""
    schema = {"type": "object", "title": kind.__name__, "description": (kind.__doc__ or "").strip()}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
