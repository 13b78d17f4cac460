# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of a Lakeward server as its clients see it: typed errors, retries while it cannot be reached, safe
after a fork.
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import Any, TypeVar

import httpx

from lakeward.errors import InvalidConfig, RemoteError, ServerUnavailable, from_wire
from lakeward.protocol.codec import decode, encode
from lakeward.protocol.routes import INFO, STARTING
from lakeward.protocol.tables import ServerInfo
from lakeward.protocol.token import TokenSource
from lakeward.protocol.version import PROTOCOL, PROTOCOL_HEADER, check_peer

_JITTER = random.Random()  # noqa: S311 - spreading retries needs no secrecy
"""A generator of its own: the module's is left to whoever seeds it."""

T = TypeVar("T")

HTTP_RETRY_S = 5.0
"""Control calls are short and people wait for them; rows are tried again for longer."""
CA_VARIABLE = "LAKEWARD_TLS_CA"
"""A PEM file with the certificates to trust, for servers whose certificate no public authority signed."""


class ServerConnection:
    """One server by its URL. Threads share it; a forked process opens connections of its own."""

    def __init__(
        self,
        url: str,
        *,
        token: str | TokenSource | None = None,
        ca: str | None = None,
        timeout_s: float = 30.0,
        retry_s: float = HTTP_RETRY_S,
    ) -> None:
        """`token` None: what the process was started with."""
        if not url.startswith(("http://", "https://")):
            raise InvalidConfig(where="server", reason=f"{url!r} is no URL such as http://127.0.0.1:9050")
        self.url = url.rstrip("/")
        self._token = TokenSource(token) if isinstance(token, str) else token or TokenSource.of_process()
        self.ca = ca or os.environ.get(CA_VARIABLE)
        self.timeout_s, self.retry_s = timeout_s, retry_s
        self._lock = threading.Lock()
        self._pid, self._client = 0, None  # type: int, httpx.Client | None
        self._info: ServerInfo | None = None

    @property
    def authorization(self) -> str | None:
        """What each call shows, over HTTP and Flight: asked for every time, as the token may
        be renewed while we run.
        """
        secret = self._token.current()
        return f"Bearer {secret}" if secret else None

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, Any] | None = None,
        repeatable: bool = True,
        timeout_s: float | None = None,
    ) -> Any:
        """The answer's JSON. Raises the server's typed error, or `ServerUnavailable` after retrying for `retry_s`.

        A call that is not `repeatable` is sent again only when it cannot have arrived."""
        give_up_at = time.monotonic() + self.retry_s
        pause_s = 0.05
        while True:
            try:
                return self._once(method, path, body, params, timeout_s)
            except ServerUnavailable as error:
                unmade = isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)
                arrived = not unmade and error.reason != STARTING
                if (arrived and not repeatable) or time.monotonic() + pause_s > give_up_at:
                    raise
            time.sleep(pause_s * _JITTER.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, 1.0)

    def call(
        self,
        kind: type[T],
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, Any] | None = None,
        repeatable: bool = True,
    ) -> T:
        return decode(kind, self.ask(method, path, body, params=params, repeatable=repeatable))

    def info(self, *, fresh: bool = False) -> ServerInfo:
        """What the server says of itself; remembered until `fresh` is asked for (it may have
        restarted on other ports).
        """
        if self._info is None or fresh:
            self._info = self.call(ServerInfo, "GET", INFO)
            check_peer(f"the server at {self.url}", self._info.protocol)
            if self._info.iceberg_uri is not None:
                self._token.use_for(self._info.iceberg_uri)
        return self._info

    def close(self) -> None:
        with self._lock:
            if self._client is not None and self._pid == os.getpid():
                self._client.close()
            self._client = None

    def _once(self, method: str, path: str, body: Any, params: dict[str, Any] | None, timeout_s: float | None) -> Any:
        try:
            json = None if body is None else encode(body)
            shown = self.authorization
            headers = None if shown is None else {"Authorization": shown}
            response = self._http().request(
                method, path, json=json, params=params, headers=headers, timeout=timeout_s or self.timeout_s
            )
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise ServerUnavailable(address=self.url, what=f"{method} {path}", reason=reason) from error
        if response.is_success:
            return response.json() if response.content else None
        raise _typed(response)

    def _http(self) -> httpx.Client:
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                headers = {PROTOCOL_HEADER: PROTOCOL, "Content-Type": "application/json"}
                self._client = httpx.Client(
                    base_url=self.url, headers=headers, timeout=self.timeout_s, verify=self._trust(), trust_env=False
                )
                self._pid = os.getpid()
            return self._client

    def _trust(self) -> Any:
        """No certificates are loaded where none is shown: 65 ms of CPU."""
        is_encrypted = self.url.startswith("https")
        if self.ca is None or not is_encrypted:
            return is_encrypted
        import ssl

        return ssl.create_default_context(cafile=self.ca)


def _typed(response: httpx.Response) -> Exception:
    try:
        wire = response.json()
    except ValueError:
        wire = None
    if isinstance(wire, dict) and "code" in wire:
        return from_wire(wire)
    return RemoteError(remote_code=str(response.status_code), text=response.text[:300])
