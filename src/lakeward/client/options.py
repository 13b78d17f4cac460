# SPDX-License-Identifier: Apache-2.0
"""Settings of a client: the `client.*` options, and the server that `lakeward up` runs in this folder."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakeward.config import Config, options, resolve
from lakeward.protocol.oauth2 import ClientCredentials
from lakeward.protocol.token import TokenSource

if TYPE_CHECKING:
    from lakeward.hot.embedded.remote.http import ServerConnection


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Times in seconds. The defaults are those of the options."""

    token: str | None = None
    token_file: Path | None = None
    """Read where no token is given, and again whenever it has changed."""
    login: ClientCredentials | None = None
    """Fetches tokens where neither token nor file is given."""
    ca: str | None = None
    timeout_s: float = options.CLIENT_TIMEOUT.default.total_seconds()
    batch_bytes: int = options.CLIENT_WRITER_BATCH_SIZE.default
    batch_rows: int = options.CLIENT_WRITER_BATCH_ROWS.default
    linger_s: float = options.CLIENT_WRITER_BATCH_TIMEOUT.default.total_seconds()
    retry_s: float = options.CLIENT_WRITER_RETRY_TIMEOUT.default.total_seconds()
    read_lease_s: float = options.CLIENT_READ_LEASE.default.total_seconds()

    def connect(self, url: str) -> ServerConnection:
        """The door for control calls. Nothing is sent yet."""
        from lakeward.hot.embedded.remote.http import HTTP_RETRY_S, ServerConnection

        retry_s = min(HTTP_RETRY_S, self.retry_s)
        return ServerConnection(url, token=self.token_source(), ca=self.ca, timeout_s=self.timeout_s, retry_s=retry_s)

    def token_source(self) -> TokenSource | None:
        """None: what the process was started with. Raises `InvalidConfig` for a file that cannot be read."""
        if self.token is None and self.token_file is None:
            return self.login
        return TokenSource.of(self.token, self.token_file)

    @classmethod
    def of(cls, config: Config, *, token: str | None = None, ca: str | None = None) -> ClientOptions:
        """`token` and `ca` given by hand come before the configured ones."""
        configured = config.get(options.CLIENT_TLS_CA)
        return cls(
            token=token if token is not None else config.get(options.CLIENT_TOKEN),
            token_file=config.get(options.CLIENT_TOKEN_FILE),
            login=ClientCredentials.of_config(config),
            ca=ca or (None if configured is None else str(configured)),
            timeout_s=config.get(options.CLIENT_TIMEOUT).total_seconds(),
            batch_bytes=config.get(options.CLIENT_WRITER_BATCH_SIZE),
            batch_rows=config.get(options.CLIENT_WRITER_BATCH_ROWS),
            linger_s=config.get(options.CLIENT_WRITER_BATCH_TIMEOUT).total_seconds(),
            retry_s=config.get(options.CLIENT_WRITER_RETRY_TIMEOUT).total_seconds(),
            read_lease_s=config.get(options.CLIENT_READ_LEASE).total_seconds(),
        )


READY = "server.ready"
"""The file in the folder of `lakeward up` that says where its server listens."""


STARTING = "server.starting"
"""The file that stands there while `lakeward up` starts its server, with the process that does."""


def is_starting(data: Path) -> bool:
    """Nothing is sent to the process: a signal of number 0 only asks whether there is one."""
    try:
        os.kill(int((data / STARTING).read_text()), 0)
    except (OSError, ValueError, OverflowError):
        return False
    return True


def resolve_server(server: str | None = None) -> Config:
    """Configuration whose server is the one given, else that of environment or lakeward.toml, else that of this
    folder, else this machine's on the port that is configured for it."""
    config = resolve(arguments={options.CLIENT_SERVER.key: server} if server else {})
    if config.is_set(options.CLIENT_SERVER):
        return config
    near = server_of(Path(config.get(options.SERVER_DATA_DIR))) or _configured(config)
    return config if near is None else resolve(arguments={options.CLIENT_SERVER.key: near})


def _configured(config: Config) -> str | None:
    port = config.get(options.SERVER_PORT) if config.is_set(options.SERVER_PORT) else 0
    return f"http{'s' if config.get(options.SERVER_TLS_CERT) else ''}://127.0.0.1:{port}" if port else None


def server_of(data: Path) -> str | None:
    """The address of the server that `up` runs on this folder. Only addresses of this machine count, since a token is
    sent there and the file is not trusted. None if no server listens, as after a kill."""
    try:
        address = urlsplit((data / READY).read_text().strip())
        if address.hostname not in ("127.0.0.1", "localhost", "::1") or address.port is None:
            return None
        socket.create_connection((address.hostname, address.port), timeout=1.0).close()
    except (OSError, ValueError):
        return None
    return f"{address.scheme}://{address.netloc}"
