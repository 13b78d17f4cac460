# SPDX-License-Identifier: Apache-2.0
"""One connection to one Fluss server: framing, requests in flight from many threads, time limits, login, reconnect.

Request: length i32 | api key i16 | api version i16 | request id i32 | body, big-endian. Response: length i32 | type i8,
then for types 0 (done) and 1 (error) the request id i32, then the body; type 2 is an error that ends the connection. A
server does not answer calls that it does not know, nor bodies that it cannot read: every call has a time limit.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lakeward import __version__
from lakeward.errors import (
    ClusterUnavailable,
    FlussError,
    IncompatibleVersion,
    InvalidRequest,
    LakewardError,
    ServerUnavailable,
)
from lakeward.hot.fluss.failures import to_error
from lakeward.hot.fluss.wire.messages import API_VERSIONS, AUTHENTICATE, ERROR, Api, Message, decode, encode

_REQUEST = struct.Struct(">ihhi")
_LENGTH = struct.Struct(">i")
_DONE, _FAILED, _BROKEN = 0, 1, 2
_VERSION = 0
"""API version of every call, up to Fluss 1.0."""

_MAX_FRAME = 256 * 1024 * 1024
"""Fluss limits a request to 100 MB; answers to what was asked for. Anything above is no Fluss."""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"

    @property
    def token(self) -> bytes:
        """SASL PLAIN."""
        return f"\0{self.user}\0{self.password}".encode()


@dataclass(frozen=True)
class PendingCall:
    """A call on its way; `result` waits for its answer."""

    connection: _Wire
    api: Api
    number: int
    future: Future[memoryview]
    timeout_s: float

    def result(self) -> Message:
        """Raises `ServerUnavailable` when there is no answer in time, and what the answer says."""
        try:
            return decode(self.api.response, self.future.result(self.timeout_s))
        except FutureTimeout:
            self.connection.forget(self.number)
            raise self.connection.no_answer(self.api, self.timeout_s) from None
        except (InvalidRequest, UnicodeDecodeError) as error:
            raise FlussError(
                address=self.connection.address, what=self.api.name, fluss_code=0, text=str(error)
            ) from error


class FlussConnection:
    """Connects on first use and again after a failure. Safe to share between threads; a forked child makes its own."""

    def __init__(
        self, host: str, port: int, *, credentials: Credentials | None = None, timeout_s: float = 30.0
    ) -> None:
        self.address = f"{host}:{port}"
        self._host, self._port = host, port
        self._credentials, self._timeout_s = credentials, timeout_s
        self._wire: _Wire | None = None
        self._lock = threading.Lock()

    def call(self, api: Api, values: Mapping[str, Any], timeout_s: float | None = None) -> Message:
        return self.send(api, values, timeout_s).result()

    def send(self, api: Api, values: Mapping[str, Any], timeout_s: float | None = None) -> PendingCall:
        """Sends and does not wait: answers may come in any order."""
        return self._ready().send(api, encode(api.request, values), timeout_s or self._timeout_s)

    def lists(self, key: int) -> bool:
        """Whether the server said, when it was last connected to, that it knows this call."""
        wire = self._wire
        return wire is not None and key in wire.supported

    def close(self) -> None:
        with self._lock:
            if self._wire is not None:
                self._wire.close("closed")
                self._wire = None

    def _ready(self) -> _Wire:
        with self._lock:
            if self._wire is None or not self._wire.is_open:
                self._wire = _open(self._host, self._port, self._credentials, self._timeout_s)
            return self._wire


def _open(host: str, port: int, credentials: Credentials | None, timeout_s: float) -> _Wire:
    address = f"{host}:{port}"
    try:
        sock = socket.create_connection((host, port), timeout_s)
    except OSError as error:
        raise ClusterUnavailable(address=address, reason=f"Fluss: {error}") from error
    _tune(sock, timeout_s)
    wire = _Wire(address, sock)
    try:
        hello = encode(API_VERSIONS.request, {"software": "lakeward", "version": __version__})
        versions = wire.send(API_VERSIONS, hello, timeout_s).result()
        wire.supported = {v["key"]: (v.get("min", 0), v.get("max", 0)) for v in versions.get("versions", [])}
        if credentials is not None:
            login = encode(AUTHENTICATE.request, {"protocol": "PLAIN", "token": credentials.token})
            wire.send(AUTHENTICATE, login, timeout_s).result()
    except LakewardError as error:
        wire.close(str(error))
        raise
    return wire


def _tune(sock: socket.socket, timeout_s: float) -> None:
    """A peer that vanished without a word is noticed by the system: else a call after the next would wait for it again,
    for a quarter of an hour."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timeout_s * 1000))
    sock.settimeout(None)


class _Wire:
    """One socket. A daemon thread reads answers and gives each to the call that waits for it."""

    def __init__(self, address: str, sock: socket.socket) -> None:
        self.address = address
        self.supported: dict[int, tuple[int, int]] = {}
        self._sock, self._pid = sock, os.getpid()
        self._calls: dict[int, tuple[Api, Future[memoryview]]] = {}
        self._next, self._broken = 0, ""
        self._state, self._write = threading.Lock(), threading.Lock()
        threading.Thread(target=self._read, name=f"fluss-{address}", daemon=True).start()

    @property
    def is_open(self) -> bool:
        """A child of a fork has the socket but not the thread that reads it."""
        return not self._broken and self._pid == os.getpid()

    def send(self, api: Api, body: bytes, timeout_s: float) -> PendingCall:
        self._check(api)
        future: Future[memoryview] = Future()
        with self._state:
            if self._broken:
                raise ClusterUnavailable(address=self.address, reason=f"Fluss: {self._broken}")
            number = self._next = (self._next + 1) & 0x7FFFFFFF
            self._calls[number] = (api, future)
        frame = _REQUEST.pack(8 + len(body), api.key, _VERSION, number) + body
        try:
            with self._write:
                self._sock.sendall(frame)
        except OSError as error:
            self.close(str(error))
        return PendingCall(self, api, number, future, timeout_s)

    def forget(self, number: int) -> None:
        with self._state:
            self._calls.pop(number, None)

    def no_answer(self, api: Api, timeout_s: float) -> ServerUnavailable:
        reason = f"Fluss did not answer {api.name} within {timeout_s:g} s"
        return ClusterUnavailable(address=self.address, reason=reason)

    def close(self, reason: str) -> None:
        """Every waiting call ends with `ServerUnavailable`."""
        with self._state:
            if self._broken:
                return
            self._broken = reason or "closed"
            waiting, self._calls = list(self._calls.values()), {}
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        for api, future in waiting:
            future.set_exception(ClusterUnavailable(address=self.address, reason=f"Fluss: {api.name}: {self._broken}"))

    def _check(self, api: Api) -> None:
        """A call that the server does not list would never be answered."""
        if not self.supported:
            return
        peer, what = f"Fluss at {self.address}", f"call {api.name}"
        if api.key not in self.supported:
            raise IncompatibleVersion(
                peer=peer, what=what, theirs=f"keys up to {max(self.supported)}", ours=str(api.key)
            )
        lowest, highest = self.supported[api.key]
        if not lowest <= _VERSION <= highest:
            raise IncompatibleVersion(
                peer=peer, what=what, theirs=f"versions {lowest} to {highest}", ours=str(_VERSION)
            )

    # ---- the reading thread ----------------------------------------------------------------------------------------
    def _read(self) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(self._receive(_LENGTH.size))
                if not 1 <= length <= _MAX_FRAME:
                    raise OSError(f"a frame of {length} bytes came: this is no Fluss server")
                self._deliver(self._receive(length))
        except (
            OSError,
            LakewardError,
            ValueError,
            struct.error,
        ) as error:  # a frame that is none: nothing after it can be trusted
            self.close(str(error))

    def _receive(self, size: int) -> memoryview:
        view, got = memoryview(bytearray(size)), 0
        while got < size:
            count = self._sock.recv_into(view[got:])
            if not count:
                raise OSError("the server closed the connection")
            got += count
        return view

    def _deliver(self, frame: memoryview) -> None:
        kind = frame[0]
        if kind == _BROKEN:
            failed = decode(ERROR, frame[1:])
            raise OSError(f"Fluss error {failed.get('code')}: {failed.get('message', '')}")
        (number,) = _LENGTH.unpack_from(frame, 1)
        with self._state:
            api, future = self._calls.pop(number, (None, None))
        if api is None or future is None:
            return  # its caller stopped waiting
        if kind == _DONE:
            future.set_result(frame[5:])
        elif kind == _FAILED:
            future.set_exception(self._error(api, frame[5:]))
        else:
            future.set_exception(
                FlussError(address=self.address, what=api.name, fluss_code=0, text=f"answer of type {kind}")
            )

    def _error(self, api: Api, body: memoryview) -> LakewardError:
        try:
            failed = decode(ERROR, body)
        except (InvalidRequest, ValueError) as error:
            return FlussError(
                address=self.address, what=api.name, fluss_code=0, text=f"an error that cannot be read: {error}"
            )
        return to_error(self.address, api.name, failed.get("code", -1), failed.get("message"))
