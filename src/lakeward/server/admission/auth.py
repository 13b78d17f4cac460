# SPDX-License-Identifier: Apache-2.0
"""Who may call over HTTP: Bearer tokens with roles, and the rule that an open address needs a token."""

from __future__ import annotations

import ipaddress
from typing import Any

from fastapi import Depends, Request

from lakeward.errors import Forbidden, InsecureBinding
from lakeward.model import JobName, TablePath
from lakeward.protocol.auth import Role, Token, TokenSet

BEARER = "bearer "


def secret_of(header: str | None) -> str | None:
    """The secret in an Authorization header; None when there is none of the Bearer kind."""
    if header is None or not header.lower().startswith(BEARER):
        return None
    return header[len(BEARER) :].strip()


def require(tokens: TokenSet, role: Role, *, all_tables: bool = False) -> Any:
    """A FastAPI dependency: the caller's token, or `Unauthorized` / `Forbidden`. A table in the path must be one of
    the token's; `all_tables`: the call is for tokens that are good for every table."""

    async def check(request: Request) -> Token:  # in the loop: a thread would cost more than all of it
        what = f"{request.method} {request.url.path}"
        token = tokens.authorize(secret_of(request.headers.get("authorization")), role, what)
        if all_tables:
            token.check_all(what)
        if "table" in request.path_params:
            token.check_table(TablePath.parse(request.path_params["table"]), what)
        request.state.token = token
        return token

    return Depends(check)


def caller(request: Request) -> Token:
    """The token that `require` found."""
    token: Token = request.state.token
    return token


def check_job(request: Request, job: JobName, *, is_bound: bool) -> None:
    """Raises `Forbidden` where job names belong to tokens and this one is another's."""
    check_job_name(caller(request), job, is_bound=is_bound)


def check_job_name(token: Token, job: JobName, *, is_bound: bool) -> None:
    """As `check_job`, of a caller that is known."""
    if is_bound and job != token.name and not job.startswith(f"{token.name}-"):
        what, needed = f"calling itself job {job}", f"a name that is {token.name} or begins with {token.name}-"
        raise Forbidden(token_name=token.name, role=str(token.role), what=what, needed=needed)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_binding(host: str, tokens: TokenSet) -> None:
    """Raises `InsecureBinding` when others could reach the server and no token is configured."""
    if not is_loopback(host) and tokens.is_open:
        raise InsecureBinding(address=host)
