# SPDX-License-Identifier: Apache-2.0
"""The client's Flight connection: opened on first use, once per process, and again after it broke."""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from lakeward.errors import InvalidRequest, LakewardError, ServerUnavailable
from lakeward.hot.embedded.remote.failure import calling, doing
from lakeward.hot.embedded.remote.http import ServerConnection
from lakeward.protocol.flight import Act, ActionRequest, Ticket, to_bytes

# Rows that come over Flight are aligned as the wire has them, which Arrow would complain of on stderr.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "ignore")

_JITTER = random.Random()  # noqa: S311 - spreading retries needs no secrecy
"""A separate generator, so that seeding `random` elsewhere does not affect it."""

T = TypeVar("T")

_log = logging.getLogger(__name__)

_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A subchannel shared between clients would keep the back-off of a connection that was given up.
    ("grpc.use_local_subchannel_pool", 1),
    # gRPC servers take a ping every five minutes and cut off who sends more.
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


class _GrpcOwner:
    """Which process runs gRPC. Its threads do not come along in a fork: a child of a process that used it would wait
    for ever.
    """

    def __init__(self) -> None:
        self.pid: int | None = None

    def check(self) -> None:
        if self.pid is None:
            self.pid = os.getpid()
        elif self.pid != os.getpid():
            reason = (
                "the process it was forked from used Flight already; fork before the first call, or start it with spawn"
            )
            raise InvalidRequest(what="Flight in a forked process", reason=reason)


_GRPC = _GrpcOwner()


class Backoff:
    """Pauses that double, with jitter, until `limit_s` has passed since the last progress."""

    def __init__(self, limit_s: float, first_s: float = 0.05, longest_s: float = 2.0, silence_s: float = 5.0) -> None:
        """A caller that waits for more than `silence_s` without progress gets the reason, once: a server may take
        minutes to come back."""
        self.limit_s, self.first_s, self.longest_s, self.silence_s = limit_s, first_s, longest_s, silence_s
        self.progress()

    def progress(self) -> None:
        self._give_up_at, self._pause_s, self._is_told = time.monotonic() + self.limit_s, self.first_s, False

    def pause(self, error: LakewardError) -> None:
        """Waits before the next attempt, or raises `error` when the time is up or trying again cannot help."""
        left_s = self._give_up_at - time.monotonic()
        if not error.retryable or self._pause_s > left_s:
            raise error
        if not self._is_told and self.limit_s - left_s > self.silence_s:
            _log.warning("%s. Trying again for another %.0f s", error, left_s)
            self._is_told = True
        time.sleep(self._pause_s * _JITTER.uniform(0.5, 1.0))
        self._pause_s = min(self._pause_s * 2, self.longest_s)


class FlightConnection:
    """Threads share it. Opened on first use, so that a process forked before (PySpark's workers) has its own; replaced
    when broken.
    """

    def __init__(self, server: ServerConnection, *, retry_s: float = 60.0) -> None:
        self.server, self.retry_s = server, retry_s
        self._lock = threading.Lock()
        self._client: flight.FlightClient | None = None

    @property
    def address(self) -> str:
        return self.server.url

    def options(self, timeout_s: float | None = None) -> flight.FlightCallOptions:
        shown = self.server.authorization
        return flight.FlightCallOptions(
            headers=[] if shown is None else [(b"authorization", shown.encode())], timeout=timeout_s
        )

    def client(self) -> flight.FlightClient:
        with self._lock:
            _GRPC.check()
            if self._client is None:
                self._client = self._open()
            return self._client

    def reset(self, broken: flight.FlightClient | None = None) -> None:
        """Drops the client, so that the next call asks the server again where Flight listens."""
        with self._lock:
            if broken is None or self._client is broken:
                self._client = None

    def act(self, action: Act, request: ActionRequest) -> Any:
        """One action's answer. All of them are safe to repeat."""
        what = str(action) if request.table is None else f"{action} of {request.table}"
        return self.retried(what, lambda client: self._act(client, action, request))

    def retried(self, what: str, call: Callable[[flight.FlightClient], T]) -> T:
        backoff = Backoff(self.retry_s)
        while True:
            client = None
            try:
                with doing(what):
                    client = self.client()
                    return call(client)
            except ServerUnavailable as error:
                self.reset(client)
                backoff.pause(error)

    def stream(self, ticket: Ticket) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        """One attempt at a read: batches with their app_metadata. Raises typed errors; a broken connection is
        forgotten.
        """
        client, reader = None, None
        try:
            with doing(f"a read of {ticket.table} ({ticket.kind})"):
                client = self.client()
                with calling(self.address):
                    reader = client.do_get(flight.Ticket(to_bytes(ticket)), self.options())
                    while True:
                        try:
                            chunk = reader.read_chunk()
                        except StopIteration:
                            reader = None
                            return
                        yield chunk.data, b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()
        except ServerUnavailable:
            if client is not None:
                self.reset(client)
            raise
        finally:
            if reader is not None:
                reader.cancel()

    def close(self) -> None:
        with self._lock:
            if self._client is not None and _GRPC.pid == os.getpid():
                self._client.close()
            self._client = None

    def _act(self, client: flight.FlightClient, action: Act, request: ActionRequest) -> Any:
        with calling(self.address):
            results = list(client.do_action(flight.Action(str(action), to_bytes(request)), self.options()))
        return json.loads(results[0].body.to_pybytes())

    def _open(self) -> flight.FlightClient:
        uri = self.server.info(fresh=True).flight_uri
        roots = Path(self.server.ca).read_bytes() if uri.startswith("grpc+tls") and self.server.ca else None
        with calling(self.address):
            return flight.FlightClient(uri, tls_root_certs=roots, generic_options=_OPTIONS)
