# SPDX-License-Identifier: Apache-2.0
"""Settings that the process reads before it opens anything: tokens, TLS, addresses."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from lakeward.config import Config, options
from lakeward.errors import InvalidConfig
from lakeward.hot.embedded.serve.grpcserver import TlsPair
from lakeward.protocol.auth import TokenFile, TokenSet
from lakeward.server.admission.auth import check_binding
from lakeward.server.admission.callers import Callers
from lakeward.server.admission.oidc import Issuer

_WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104 - names them, binds to none


@dataclass(frozen=True, kw_only=True)
class Tls:
    cert: Path
    key: Path

    def pair(self) -> TlsPair:
        return TlsPair(
            certificate=_read(self.cert, options.SERVER_TLS_CERT.key), key=_read(self.key, options.SERVER_TLS_KEY.key)
        )


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    host: str
    port: int
    flight_port: int
    advertised_host: str
    tokens: TokenSet
    issuer: Issuer | None
    token_file: Path | None
    tls: Tls | None
    callers: Callers
    data: Path

    @classmethod
    def of(cls, config: Config) -> ServerSettings:
        """Raises `InvalidConfig`, and `InsecureBinding` for an open address without a token."""
        host, issuer = config.get(options.SERVER_HOST), Issuer.of(config)
        tokens = load_tokens(config, issuer)
        check_binding(host, tokens)
        advertised = config.get(options.SERVER_ADVERTISED_HOST) or (
            socket.gethostname() if host in _WILDCARDS else host
        )
        allowed = config.get(options.SERVER_ALLOWED_HOSTS)
        return cls(
            host=host,
            port=config.get(options.SERVER_PORT),
            flight_port=config.get(options.SERVER_FLIGHT_PORT),
            advertised_host=advertised,
            tokens=tokens,
            issuer=issuer,
            token_file=None if (file := config.get(options.SERVER_TOKEN_FILE)) is None else Path(file),
            tls=load_tls(config),
            callers=Callers.of(allowed, (host, advertised), has_tokens=not tokens.is_open),
            data=Path(config.get(options.SERVER_DATA_DIR)),
        )

    def http_url(self, port: int) -> str:
        return f"{'https' if self.tls else 'http'}://{_bracketed(self.advertised_host)}:{port}"

    def flight_uri(self, port: int) -> str:
        return f"{'grpc+tls' if self.tls else 'grpc'}://{_bracketed(self.advertised_host)}:{port}"


def load_tokens(config: Config, issuer: Issuer | None = None) -> TokenSet:
    file = config.get(options.SERVER_TOKEN_FILE)
    return TokenSet.parse(config.get(options.SERVER_TOKENS), None if file is None else TokenFile(Path(file)), issuer)


def load_tls(config: Config) -> Tls | None:
    cert, key = config.get(options.SERVER_TLS_CERT), config.get(options.SERVER_TLS_KEY)
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise InvalidConfig(where="server.tls", reason="server.tls.cert and server.tls.key go together")
    return Tls(cert=Path(cert), key=Path(key))


def _read(path: Path, key: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidConfig(where=key, reason=str(error)) from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
