# SPDX-License-Identifier: Apache-2.0
"""OAuth2 client credentials at the catalog, for engines that log in with `credential`: a token's name and secret."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, unquote_plus

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from lakeward.errors import LakewardError, Unauthorized
from lakeward.protocol.auth import TokenSet
from lakeward.server.iceberg.answers import answer

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind


def oauth_endpoint(auth: TokenSet) -> Callable[[Request], Awaitable[Response]]:
    """The access token is the secret itself: it is as good as the caller's login, and taken back with it. Tokens of an
    OpenID issuer come from the issuer's own endpoint (`oauth2-server-uri`)."""

    async def log_in(request: Request) -> Response:
        try:
            form = parse_qs((await request.body()).decode("ascii", "replace"), max_num_fields=20)
        except (ValueError, ClientDisconnect, LakewardError):
            return _refusal("invalid_request", "a form with grant_type, client_id and client_secret is expected")
        if form.get("grant_type") != ["client_credentials"]:
            return _refusal(
                "unsupported_grant_type", "the catalog knows client_credentials; renew others at their issuer"
            )
        name, secret = _login(request, form)
        try:
            token = auth.identify(secret, "a login at the catalog")
            if name and name != token.name and not auth.is_open:
                raise Unauthorized(what="a login at the catalog", reason="client id and secret do not belong together")
        except LakewardError as error:
            return _refusal("invalid_client", str(error), 401 if isinstance(error, Unauthorized) else error.http_status)
        body = {"access_token": secret, "token_type": "bearer", "issued_token_type": ACCESS_TOKEN}
        response = answer(body)
        response.headers["Cache-Control"] = "no-store"
        return response

    return log_in


def _login(request: Request, form: dict[str, list[str]]) -> tuple[str, str]:
    kind, _, encoded = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            name, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return "", ""
        return unquote_plus(name), unquote_plus(secret)
    return form.get("client_id", [""])[0], form.get("client_secret", [""])[0]


def _refusal(error: str, description: str, status: int = 400) -> Response:
    return answer({"error": error, "error_description": description}, status)
