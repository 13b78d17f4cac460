# SPDX-License-Identifier: Apache-2.0
"""Settings of a client: the `client.*` options, from lakeward.toml, the environment and arguments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.config import Config, options
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
