# SPDX-License-Identifier: Apache-2.0
"""The Flight server: authorises each call, then hands it to put, get or actions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.flight as flight

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.door.failure import answering
from lakeward.hot.embedded.serve.actions import ACTIONS, answer, find_action
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.engine import Engine
from lakeward.hot.embedded.serve.gate import CallGate
from lakeward.hot.embedded.serve.get import open_read
from lakeward.hot.embedded.serve.put import PutStream
from lakeward.protocol.auth import Role, TokenSet
from lakeward.protocol.flight import ActionRequest, PutCommand, Ticket, from_bytes

BEARER = "bearer "


@dataclass(frozen=True, kw_only=True)
class TlsPair:
    """PEM bytes of the certificate chain and its key."""

    certificate: bytes
    key: bytes


class _Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """Keeps the secret a call came with."""

    def __init__(self, secret: str | None) -> None:
        super().__init__()
        self.secret = secret


class _CallerFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> _Caller:
        for name, values in headers.items():
            if name.lower() == "authorization" and values and values[0].lower().startswith(BEARER):
                return _Caller(values[0][len(BEARER) :].strip())
        return _Caller(None)


class FlightService(flight.FlightServerBase):  # type: ignore[misc]
    """Listens as soon as it is made, on `port`, and lets calls in once `gate` is open.

    `gate.drain()` ends its work; `shutdown()` besides waits until every peer has closed its streams, idle ones
    included."""

    def __init__(
        self,
        engine: Engine,
        tokens: TokenSet,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: TlsPair | None = None,
        budget: MemoryBudget | None = None,
        is_open: bool = True,
    ) -> None:
        self.engine, self.tokens, self.budget = engine, tokens, budget or MemoryBudget()
        self.gate = CallGate(f"{host}:{port}", is_open=is_open)
        scheme = "grpc+tls" if tls else "grpc"
        certificates = [(tls.certificate, tls.key)] if tls else None
        name = f"[{host}]" if ":" in host else host
        super().__init__(
            f"{scheme}://{name}:{port}", tls_certificates=certificates, middleware={"caller": _CallerFactory()}
        )

    def _authorize(self, context: flight.ServerCallContext, role: Role, what: str) -> None:
        self.tokens.authorize(context.get_middleware("caller").secret, role, what)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        with answering("do_put"):
            self._authorize(context, Role.WRITE, "do_put")
            if descriptor.command is None:
                raise InvalidRequest(what="do_put", reason="the descriptor carries a command")
            with self.gate.inside():
                stream = PutStream(
                    self.engine, self.gate, self.budget, from_bytes(PutCommand, descriptor.command), reader.schema
                )
            stream.serve(reader, writer)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.GeneratorStream:
        with answering("do_get"):
            self._authorize(context, Role.READ, "do_get")
            with self.gate.inside():
                return open_read(
                    self.engine,
                    from_bytes(Ticket, ticket.ticket),
                    lambda: context.is_cancelled() or not self.gate.is_open,
                )

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        with answering(f"action {action.type}"):
            self._authorize(context, find_action(action.type).role, f"action {action.type}")
            request = from_bytes(ActionRequest, action.body.to_pybytes() or b"{}")
            with self.gate.inside():
                return iter([json.dumps(answer(self.engine, action.type, request)).encode()])

    def list_actions(self, context: flight.ServerCallContext) -> list[Any]:
        return [(str(name), found.help) for name, found in ACTIONS.items()]
