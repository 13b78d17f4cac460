# SPDX-License-Identifier: Apache-2.0
"""Flight's methods over gRPC's own server: its limits, who is let in, and how a call ends. A call's token is looked at
before any of its messages is read.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC writes what peers send to standard error, past the log's limits

import grpc

from lakeward.errors import InvalidConfig, LakewardError
from lakeward.hot.embedded.serve.calls import CallWatch, FlightCall, Send, peer_of
from lakeward.hot.embedded.serve.quota import StreamQuotas
from lakeward.hot.embedded.serve.status import CallEnded, answering, set_status
from lakeward.model import Heartbeat
from lakeward.protocol.auth import Token, TokenSet

SERVICE = "/arrow.flight.protocol.FlightService/"
BEARER = "bearer "

BESIDE_BATCH = 4 << 20
"""Room in a put's message besides the batch: header, padding of each buffer, descriptor."""
_REFUSING_THREADS = 2
_MOST_REFUSALS = 1000
"""Refusals that wait to be sent with words; beyond that callers hear `unimplemented`, which costs no thread."""

Method = Callable[[FlightCall], None]
Refused = Callable[[LakewardError, str, str], None]
"""Hears the error, the peer and the method of a call that was not let in."""


@dataclass(frozen=True, kw_only=True)
class TlsPair:
    """PEM bytes of the certificate chain and its key."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, kw_only=True)
class FlightLimits:
    """`header_s` for a connection's greeting and a call's first message; three times that for a connection without
    calls, which a client that comes back opens again; `idle_s` for the later messages of a put, and for a peer that
    takes nothing of its answer."""

    batch_bytes: int = 64 << 20
    ticket_bytes: int = 16 << 20
    connections: int = 1000
    header_s: float = 20.0
    idle_s: float = 600.0

    def options(self, calls: int) -> list[tuple[str, int]]:
        """gRPC's names for them; `calls` of one connection."""
        return [
            ("grpc.max_receive_message_length", self.batch_bytes + BESIDE_BATCH),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", calls),
            ("grpc.max_metadata_size", 16 << 10),
            ("grpc.absolute_max_metadata_size", 32 << 10),
            ("grpc.max_allowed_incoming_connections", self.connections),
            ("grpc.server_handshake_timeout_ms", int(1000 * self.header_s)),
            ("grpc.max_connection_idle_ms", int(3000 * self.header_s)),
            ("grpc.max_connection_age_ms", _CONNECTION_AGE_MS),
            ("grpc.keepalive_time_ms", 120_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a small message could unpack into a large one
            ("grpc.so_reuseport", 0),  # a second server on the same port is an error
        ]


_CONNECTION_AGE_MS = 3_600_000
"""Then new calls go to a new connection; those under way go on."""


class GrpcServer:
    """Listens once it is made; `is_serving` until it is stopped."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        tokens: TokenSet,
        quotas: StreamQuotas,
        watch: CallWatch,
        limits: FlightLimits,
        on_refused: Refused,
        *,
        host: str,
        port: int,
        tls: TlsPair | None,
    ) -> None:
        """Raises `OSError`, and `InvalidConfig` for a certificate that cannot be used."""
        self._pool = ThreadPoolExecutor(quotas.in_all, "flight-call")
        self._admission = _Admission(methods, tokens, quotas, watch, on_refused)
        self._server = grpc.server(self._pool, handlers=[self._admission], options=limits.options(quotas.in_all))
        self.port = self._listen(host, port, tls)
        before = set(threading.enumerate())
        self._server.start()
        (self._thread,) = (t for t in set(threading.enumerate()) - before if "_serve" in t.name)
        self._thread.name = "flight"

    @property
    def is_serving(self) -> bool:
        """gRPC hands out all that happens to calls from one thread."""
        return self._thread.is_alive()

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(name="flight", age_s=0.0, is_well=self.is_serving)

    def stop(self) -> None:
        """Ends all calls and waits until what is in work has ended."""
        self._server.stop(None)
        self._pool.shutdown()
        self._admission.pool.shutdown()

    def _listen(self, host: str, port: int, tls: TlsPair | None) -> int:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if tls is None:
                return int(self._server.add_insecure_port(address))
            credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)])
            return int(self._server.add_secure_port(address, credentials))
        except RuntimeError as error:  # which says only that it failed
            with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
                pass
            if tls is None:
                raise OSError(str(error)) from error
            reason = "Flight cannot use the certificate and key: they are not PEM, or do not belong together"
            raise InvalidConfig(where="server.tls.cert", reason=reason) from error


class _Admission(grpc.GenericRpcHandler):  # type: ignore[misc]
    """gRPC's one thread asks it at the beginning of each call, before it reads any message."""

    def __init__(
        self, methods: Mapping[str, Method], tokens: TokenSet, quotas: StreamQuotas, watch: CallWatch, refused: Refused
    ) -> None:
        self._methods = {SERVICE + name: method for name, method in methods.items()}
        self._tokens, self._quotas, self._watch, self._refused = tokens, quotas, watch, refused
        self._refusals = threading.Semaphore(_MOST_REFUSALS)
        self.pool = ThreadPoolExecutor(_REFUSING_THREADS, "flight-refusal")

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method, name = self._methods.get(details.method), details.method.removeprefix(SERVICE)
        if method is None:
            return None
        try:
            token = self._tokens.identify(_secret(details.invocation_metadata), name)
            self._quotas.enter(token.name)
        except LakewardError as error:
            if not self._refusals.acquire(blocking=False):
                return None
            return grpc.stream_stream_rpc_method_handler(_Behavior(partial(self._refuse, error, name), self.pool))
        return grpc.stream_stream_rpc_method_handler(_Behavior(partial(self._serve, token, method, name)))

    def _serve(
        self,
        token: Token,
        method: Method,
        name: str,
        requests: Iterator[bytes],
        context: grpc.ServicerContext,
        send: Send,
    ) -> None:
        try:
            call = FlightCall(token, context, requests, send)
            with self._watch.watching(call), answering(name):
                method(call)
        except LakewardError as error:
            set_status(context, error)
        except CallEnded:
            pass
        finally:
            self._quotas.leave(token.name)
        send(None)

    def _refuse(
        self, error: LakewardError, name: str, requests: Iterator[bytes], context: grpc.ServicerContext, send: Send
    ) -> None:
        try:
            self._refused(error, peer_of(context), name)
            set_status(context, error)
            send(None)
        finally:
            self._refusals.release()


class _Behavior:
    """The behavior that gRPC runs for one call. It gets the function that sends, so that acknowledgements need no
    thread between them and the network."""

    experimental_non_blocking = True

    def __init__(self, run: Callable[..., None], pool: ThreadPoolExecutor | None = None) -> None:
        """`pool` None: the server's."""
        self._run, self.experimental_thread_pool = run, pool

    def __call__(self, requests: Iterator[bytes], context: grpc.ServicerContext, send: Send) -> None:
        self._run(requests, context, send)


def _secret(metadata: Sequence[tuple[str, str | bytes]]) -> str | None:
    for name, value in metadata:
        if name == "authorization" and isinstance(value, str) and value[: len(BEARER)].lower() == BEARER:
            return value[len(BEARER) :].strip()
    return None
