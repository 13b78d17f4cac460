# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of a Lakeward server as its clients see it: typed errors, retries while it cannot be reached, safe
after a fork.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from lakeward.errors import InvalidConfig, RemoteError, ServerUnavailable, from_wire
from lakeward.hot.embedded.remote.httppool import Answer, CallFailed, HttpPool
from lakeward.protocol.routes import INFO, PROTOCOL, PROTOCOL_HEADER, STARTING, check_peer
from lakeward.protocol.token import TokenSource

if TYPE_CHECKING:
    from lakeward.protocol.tables import ServerInfo

_JITTER = random.Random()  # noqa: S311 - spreading retries needs no secrecy
"""A separate generator, so that seeding `random` elsewhere does not affect it."""

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
        self._pid, self._pool = 0, None  # type: int, HttpPool | None
        self._info: ServerInfo | None = None

    @property
    def authorization(self) -> str | None:
        """The authorization header of each call, over HTTP and Flight. Read for each call, as the token may be renewed
        while the process runs."""
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
        retry_s: float | None = None,
    ) -> Any:
        """The answer's JSON. Raises the server's typed error, or `ServerUnavailable` after retrying for `retry_s`.

        A call that is not `repeatable` is sent again only when it cannot have arrived."""
        give_up_at = time.monotonic() + (self.retry_s if retry_s is None else retry_s)
        pause_s = 0.05
        while True:
            try:
                return self._once(method, path, body, params, timeout_s)
            except ServerUnavailable as error:
                is_sent = not isinstance(error.__cause__, CallFailed) or error.__cause__.is_sent
                arrived = is_sent and error.reason != STARTING
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
        from lakeward.protocol.codec import decode

        return decode(kind, self.ask(method, path, body, params=params, repeatable=repeatable))

    def info(self, *, fresh: bool = False) -> ServerInfo:
        """The server's description of itself, cached unless `fresh` (it may have restarted on other ports)."""
        from lakeward.protocol.tables import ServerInfo

        if self._info is None or fresh:
            self._info = self.call(ServerInfo, "GET", INFO)
            check_peer(f"the server at {self.url}", self._info.protocol)
            if self._info.iceberg_uri is not None:
                self._token.use_for(self._info.iceberg_uri, self.ca)
        return self._info

    def close(self) -> None:
        with self._lock:
            if self._pool is not None and self._pid == os.getpid():
                self._pool.close()
            self._pool = None

    def _once(self, method: str, path: str, body: Any, params: dict[str, Any] | None, timeout_s: float | None) -> Any:
        sent = body if body is None or isinstance(body, bytes) else _json(body)
        shown = self.authorization
        headers = {} if shown is None else {"Authorization": shown}
        target = f"{path}?{urlencode(params)}" if params else path
        try:
            answer = self._http().call(method, target, sent, headers, timeout_s or self.timeout_s)
        except CallFailed as error:
            raise ServerUnavailable(address=self.url, what=f"{method} {path}", reason=error.reason) from error
        if answer.is_success:
            return _parsed(answer)
        raise _typed(answer)

    def _http(self) -> HttpPool:
        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                headers = {PROTOCOL_HEADER: PROTOCOL, "Content-Type": "application/json"}
                self._pool = HttpPool(self.url, headers=headers, ca=self.ca)
                self._pid = os.getpid()
            return self._pool


def _json(body: Any) -> bytes:
    """A call without one, such as `tier-now`, needs none of the messages' types."""
    from lakeward.protocol.codec import encode

    return json.dumps(encode(body), ensure_ascii=False, allow_nan=False).encode()


_MOST_VALUES = 5_000_000
"""Of an answer in JSON: a few hundred bytes of memory for each."""


def _parsed(answer: Answer) -> Any:
    """Raises `RemoteError` for an answer that is no JSON, or too much of it."""
    if not answer.content:
        return None
    if sum(answer.content.count(sign) for sign in (b"{", b"[", b",")) > _MOST_VALUES:
        raise RemoteError(remote_code=str(answer.status), text=f"JSON of more than {_MOST_VALUES:,} values")
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError) as error:
        text = f"no JSON: {answer.content[:100].decode(errors='replace')!r}"
        raise RemoteError(remote_code=str(answer.status), text=text) from error


def _typed(answer: Answer) -> Exception:
    try:
        wire = _parsed(answer)
    except RemoteError:
        wire = None
    if isinstance(wire, dict) and "code" in wire:
        return from_wire(wire)
    return RemoteError(remote_code=str(answer.status), text=answer.content[:300].decode(errors="replace"))
