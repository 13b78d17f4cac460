# SPDX-License-Identifier: Apache-2.0
"""Who may call over HTTP: Bearer tokens with roles, and the rule that an open address needs a token."""

from __future__ import annotations

import ipaddress
from typing import Any

from fastapi import Depends, Request

from lakeward.errors import InsecureBinding
from lakeward.protocol.auth import Role, Token, TokenSet

BEARER = "bearer "


def secret_of(header: str | None) -> str | None:
    """The secret in an Authorization header; None when there is none of the Bearer kind."""
    if header is None or not header.lower().startswith(BEARER):
        return None
    return header[len(BEARER) :].strip()


def require(tokens: TokenSet, role: Role) -> Any:
    """A FastAPI dependency: the caller's token, or `Unauthorized` / `Forbidden`."""

    def check(request: Request) -> Token:
        return tokens.authorize(
            secret_of(request.headers.get("authorization")), role, f"{request.method} {request.url.path}"
        )

    return Depends(check)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_binding(host: str, tokens: TokenSet) -> None:
    """Raises `InsecureBinding` when others could reach the server and no token is configured."""
    if not is_loopback(host) and not tokens.tokens:
        raise InsecureBinding(address=host)
