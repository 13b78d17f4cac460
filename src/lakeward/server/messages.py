# SPDX-License-Identifier: Apache-2.0
"""Protocol messages as HTTP bodies: reads a request into its dataclass, writes an answer from one."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse

from lakeward.errors import InvalidRequest
from lakeward.model import SideName, of_table
from lakeward.protocol.codec import decode, encode, load_json

T = TypeVar("T")


async def read_message(request: Request, kind: type[T], *, exact: bool = False) -> T:
    """The request's body as a message. Raises `InvalidRequest` naming what does not fit; `exact`: also a field that
    the message does not have, where skipping it would report a success that changed nothing."""
    body = load_json(await request.body(), f"body of {request.method} {request.url.path}")
    with of_table(_table_of(request, body)):
        message = decode(kind, body)
    if exact:
        check_fields(body, encode(message), kind.__name__)
    return message


def _table_of(request: Request, body: Any) -> str:
    named = request.path_params.get("table") or (body.get("path") if isinstance(body, dict) else None)
    return named if isinstance(named, str) else ""


def check_fields(body: Any, known: Any, where: str) -> None:
    """Raises `InvalidRequest` for a field that was sent and is not there any more once the message is spelled again."""
    if isinstance(body, list) and isinstance(known, list):
        for sent, kept in zip(body, known, strict=False):
            check_fields(sent, kept, where)
    elif isinstance(body, dict) and isinstance(known, dict):
        for name, sent in body.items():
            if name not in known:
                raise InvalidRequest(what=f"{where}.{name}", reason=f"no such field; there are {', '.join(known)}")
            check_fields(sent, known[name], f"{where}.{name}")


def answer(message: Any, *, status: int = 200) -> JSONResponse:
    return JSONResponse(encode(message), status_code=status)


def described(kind: type[Any]) -> dict[str, Any]:
    """`openapi_extra` of a route that takes this message."""
    schema = {"type": "object", "title": kind.__name__, "description": (kind.__doc__ or "").strip()}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def read_side(
    side: Annotated[
        str | None, Query(description="`lake` or `lake:changelog`; the table's first side if absent")
    ] = None,
) -> SideName | None:
    try:
        return None if side is None else SideName.parse(side)
    except ValueError as error:
        raise InvalidRequest(what="side", reason=str(error)) from error


Side = Annotated[SideName | None, Depends(read_side)]
