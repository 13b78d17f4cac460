# SPDX-License-Identifier: Apache-2.0
"""A small OpenID Connect issuer on loopback: discovery, keys that rotate, and client credentials."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

AUDIENCE = "lakeward"


class LocalIssuer:
    """`clients`: id -> (secret, claims of its tokens). `life_s`: of tokens that clients fetch."""

    def __init__(self) -> None:
        self.keys = [self.new_key("first")]
        self.clients: dict[str, tuple[str, dict[str, Any]]] = {}
        self.life_s, self.key_loads, self.logins = 3600.0, 0, 0
        self.is_down = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @staticmethod
    def new_key(kid: str, kind: str = "EC") -> Any:
        made = ECKey.generate_key("P-256") if kind == "EC" else RSAKey.generate_key(2048)
        return type(made).import_key({**made.as_dict(private=True), "kid": kid})

    def __enter__(self) -> LocalIssuer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def token(
        self, key: Any = None, *, header: dict[str, Any] | None = None, life_s: float = 3600, **claims: Any
    ) -> str:
        key = key or self.keys[0]
        algorithm = "ES256" if key.key_type == "EC" else "RS256"
        now = time.time()
        every = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": int(now), "exp": now + life_s, **claims}
        shown = {k: v for k, v in every.items() if v is not None}
        return jwt.encode({"alg": algorithm, "kid": key.kid, **(header or {})}, shown, key, algorithms=[algorithm])

    def _answer(self, path: str, form: dict[str, list[str]], login: str) -> tuple[int, dict[str, Any]]:
        if self.is_down:
            return 503, {}
        if path == "/.well-known/openid-configuration":
            return 200, {"issuer": self.url, "jwks_uri": f"{self.url}/keys", "token_endpoint": f"{self.url}/token"}
        if path == "/keys":
            self.key_loads += 1
            return 200, dict(KeySet(self.keys).as_dict(private=False))
        name, _, secret = (
            base64.b64decode(login.removeprefix("Basic ")).decode().partition(":") if login else ("", "", "")
        )
        name, secret = unquote_plus(name) or form.get("client_id", [""])[0], unquote_plus(secret)
        secret = secret or form.get("client_secret", [""])[0]
        known = self.clients.get(name)
        if path != "/token" or form.get("grant_type") != ["client_credentials"] or known is None or known[0] != secret:
            return 401, {"error": "invalid_client"}
        self.logins += 1
        token = self.token(life_s=self.life_s, **{"sub": name, **known[1]})
        return 200, {"access_token": token, "token_type": "bearer", "expires_in": int(self.life_s)}

    def _handler(issuer: LocalIssuer) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(*issuer._answer(self.path, {}, ""))

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._send(*issuer._answer(self.path, form, self.headers.get("Authorization", "")))

            def _send(self, status: int, body: dict[str, Any]) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler
