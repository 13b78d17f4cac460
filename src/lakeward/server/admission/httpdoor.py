# SPDX-License-Identifier: Apache-2.0
"""HTTP of this process: a listener, a thread that serves an application on it, and the limits of its connections."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lakeward.config import Config, options
from lakeward.errors import InvalidConfig, ServerUnavailable
from lakeward.protocol.routes import HEALTH, READY, STARTING
from lakeward.server.admission.connections import ConnectionLimits
from lakeward.server.admission.gate import refuse
from lakeward.server.admission.settings import Tls


class HttpDoor:
    """`start` returns once calls are answered. Raises `InvalidConfig` where HTTP cannot start."""

    def __init__(self, config: Config, tls: Tls | None, app: ASGIApp, listener: socket.socket) -> None:
        limits = ConnectionLimits(
            total=config.get(options.SERVER_HTTP_MAX_CONNECTIONS),
            per_peer=config.get(options.SERVER_HTTP_MAX_CONNECTIONS_PER_PEER),
            header_s=config.get(options.SERVER_HTTP_HEADER_TIME).total_seconds(),
        )
        grace_s = config.get(options.SERVER_SHUTDOWN_GRACE).total_seconds()
        http = self._http = uvicorn.Server(
            uvicorn.Config(
                app,
                http=limits.protocol(),
                log_config=None,
                access_log=False,
                lifespan="off",
                ssl_certfile=None if tls is None else str(tls.cert),
                ssl_keyfile=None if tls is None else str(tls.key),
                timeout_graceful_shutdown=max(1, round(grace_s)),
            )
        )
        self._thread = threading.Thread(
            target=lambda: asyncio.run(http.serve(sockets=[listener])), name="http", daemon=True
        )

    @property
    def is_serving(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()
        while not self._http.started:
            if not self._thread.is_alive():
                raise InvalidConfig(where="server", reason="HTTP did not start; the log above says why")
            time.sleep(0.005)

    def stop(self, limit_s: float) -> None:
        self._http.should_exit = True
        self._thread.join(limit_s)


def bind_listener(host: str, port: int) -> socket.socket:
    """The protocol is named on purpose: asyncio sends without delay (TCP_NODELAY) only on sockets that say they are
    TCP. Without it each answer whose body follows its headers waits 40 ms for the peer's delayed acknowledgement.
    Raises `InvalidConfig`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InvalidConfig(
            where="server.host and server.port", reason=f"cannot listen on {host}:{port}: {error}"
        ) from error
    return listener


class FrontDoor:
    """An ASGI application that hands all calls to `app`, as soon as it is set."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if app is not None:
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await _while_starting(scope["path"])(scope, receive, send)


def _while_starting(path: str) -> JSONResponse:
    if path == HEALTH:
        return JSONResponse({"status": "starting"})
    if path == READY:
        return JSONResponse({"ready": False}, status_code=503)
    return refuse(path, ServerUnavailable(address="this server", reason=STARTING, what=path[:200]))
