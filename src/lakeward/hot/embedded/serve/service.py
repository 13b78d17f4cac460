# SPDX-License-Identifier: Apache-2.0
"""The Flight server: authorises each call, then hands it to put, get or actions."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow.flight as flight

from lakeward.errors import InvalidRequest, LakewardError, Unauthorized
from lakeward.hot.embedded.door.failure import answering
from lakeward.hot.embedded.gate.rules import PEER
from lakeward.hot.embedded.serve.actions import ACTIONS, answer, find_action
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.consumers import Consumers, count_reached
from lakeward.hot.embedded.serve.gate import CallGate
from lakeward.hot.embedded.serve.get import open_read
from lakeward.hot.embedded.serve.outlet import widen_outlets
from lakeward.hot.embedded.serve.put import PutStream
from lakeward.hot.embedded.serve.quota import SnapshotQuotas, StreamQuotas, WriterQuotas
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model.table import TablePath
from lakeward.protocol.auth import Role, Token, TokenSet
from lakeward.protocol.flight import Act, ActionRequest, PutCommand, Read, Ticket, from_bytes

log = logging.getLogger(__name__)

BEARER = "bearer "
_MOST_READERS = 10_000
"""Connections that are known to have read; beyond that all of them are new again."""


@dataclass(frozen=True, kw_only=True)
class TlsPair:
    """PEM bytes of the certificate chain and its key."""

    certificate: bytes
    key: bytes


class Audited(Protocol):
    """Where calls are recorded. The server's audit log has this shape."""

    def flight(self, who: str, peer: str, what: str, table: str | None, result: str, *, is_change: bool) -> None: ...


class _Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """The token that a call came with, counted as under way until it ends. `peer` as the gate tells it."""

    def __init__(self, token: Token, quotas: StreamQuotas, peer: str | None) -> None:
        super().__init__()
        self.token, self.peer, self._quotas = token, peer, quotas

    def call_completed(self, exception: Exception | None) -> None:
        self._quotas.leave(self.token.name)


class _Callers(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Looks at a call's headers before any of its messages: without a valid token nothing of a stream is read."""

    def __init__(self, tokens: TokenSet, quotas: StreamQuotas, behind: Path | None) -> None:
        super().__init__()
        self._tokens, self._quotas, self._behind = tokens, quotas, behind
        self._readers: set[str] = set()

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> _Caller:
        method = str(info.method)
        with answering(method):
            try:
                token = self._tokens.identify(_secret(headers), method)
            except Unauthorized:
                log.warning("refused a Flight call (%s): no valid token", method)
                raise
            self._quotas.enter(token.name)
            peer = None if self._behind is None else headers.get(PEER.decode(), [None])[0]
            if peer is not None and self._behind is not None and info.method is flight.FlightMethod.DO_GET:
                self._widen(peer, self._behind)
            return _Caller(token, self._quotas, peer)

    def _widen(self, peer: str, behind: Path) -> None:
        """At a connection's first read. Its address is told by the gate alone: nobody else reaches the socket."""
        if peer not in self._readers:
            if len(self._readers) >= _MOST_READERS:
                self._readers.clear()
            self._readers.add(peer)
            widen_outlets(behind)


def _secret(headers: dict[str, list[str]]) -> str | None:
    for name, values in headers.items():
        if name.lower() == "authorization" and values and values[0].lower().startswith(BEARER):
            return values[0][len(BEARER) :].strip()
    return None


class FlightService(flight.FlightServerBase):  # type: ignore[misc]
    """Listens as soon as it is made, and lets calls in once `gate` is open. With `behind`, a path, it listens there and
    a `GateKeeper`'s gate in front of it has the port and TLS; without, on `host` and `port` itself.

    `gate.drain()` ends its work; `shutdown()` besides waits until every peer has closed its streams, idle ones
    included."""

    def __init__(
        self,
        store: EmbeddedStore,
        tokens: TokenSet,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: TlsPair | None = None,
        budget: MemoryBudget | None = None,
        audit: Audited | None = None,
        quotas: StreamQuotas | None = None,
        writers: WriterQuotas | None = None,
        is_open: bool = True,
        behind: Path | None = None,
        consumers: Consumers | None = None,
    ) -> None:
        self.store, self.tokens, self.budget, self.audit = store, tokens, budget or MemoryBudget(), audit
        self.snapshots, self.writers = SnapshotQuotas(), writers or WriterQuotas()
        self.consumers = consumers or Consumers()
        self.gate = CallGate(f"{host}:{port}", is_open=is_open)
        scheme = "grpc+tls" if tls else "grpc"
        certificates = [(tls.certificate, tls.key)] if tls else None
        name = f"[{host}]" if ":" in host else host
        super().__init__(
            f"grpc+unix://{behind}" if behind else f"{scheme}://{name}:{port}",
            tls_certificates=certificates,
            middleware={"caller": _Callers(tokens, quotas or StreamQuotas(), behind)},
        )

    def _authorize(self, context: flight.ServerCallContext, role: Role, what: str) -> Token:
        token: Token = context.get_middleware("caller").token
        token.check_role(role, what)
        return token

    @contextmanager
    def _recorded(
        self, context: flight.ServerCallContext, what: str, table: TablePath | None, *, is_change: bool
    ) -> Iterator[None]:
        if self.audit is None:
            yield
            return
        caller, result = context.get_middleware("caller"), "ok"
        try:
            yield
        except LakewardError as error:
            result = error.code
            raise
        except Exception:
            result = "failed"
            raise
        finally:
            shown = None if table is None else str(table)
            peer = caller.peer or str(context.peer())
            self.audit.flight(caller.token.name, peer, what, shown, result, is_change=is_change)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        with answering("do_put"):
            token = self._authorize(context, Role.WRITE, "do_put")
            if descriptor.command is None:
                raise InvalidRequest(what="do_put", reason="the descriptor carries a command")
            command = from_bytes(PutCommand, descriptor.command)
            with self._recorded(context, f"put {command.kind}", command.table, is_change=True):
                token.check_table(command.table, "do_put")
                with self.gate.inside():
                    budget, begin = self.budget.of(token.name), partial(self.writers.begin, token.name)
                    stream = PutStream(self.store, self.gate, budget, command, reader.schema, begin)
                stream.serve(reader, writer)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.GeneratorStream:
        with answering("do_get"):
            token = self._authorize(context, Role.READ, "do_get")
            wanted = from_bytes(Ticket, ticket.ticket)
            with self._recorded(context, f"get {wanted.kind}", wanted.table, is_change=False), self.gate.inside():
                token.check_table(wanted.table, "do_get")
                budget = self.budget.of(token.name)
                opened = open_read(self.store, wanted, budget, lambda: context.is_cancelled() or not self.gate.is_open)
                self._note(context, token, wanted)
                return opened

    def _note(self, context: flight.ServerCallContext, token: Token, wanted: Ticket) -> None:
        """Of a read that was opened: its table is there."""
        if wanted.kind is Read.TAIL:
            peer = context.get_middleware("caller").peer or str(context.peer())
            reached = count_reached(wanted.offsets or {}, self.store.bounds(self.store.load_table(wanted.table)))
            self.consumers.note(wanted.table_id, token.name, peer, reached)
        elif wanted.kind is Read.LOOKUP:
            self.consumers.note_read(wanted.table_id)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        with answering(f"action {action.type[:100]}"):
            what = f"action {action.type[:100]}"
            token = self._authorize(context, find_action(action.type).role, what)
            request = from_bytes(ActionRequest, action.body.to_pybytes() or b"{}")
            with self._recorded(context, what, request.table, is_change=False), self.gate.inside():
                if request.table is not None:
                    token.check_table(request.table, what)
                with self._counted(action.type, request, token):
                    return iter([json.dumps(answer(self.store, action.type, request, token)).encode()])

    def _counted(self, action: str, request: ActionRequest, token: Token) -> AbstractContextManager[None]:
        if request.table is None:
            return nullcontext()
        if action == Act.TAKE_SNAPSHOT and request.bucket is not None:
            return self.snapshots.taking(token.name, request.table, request.bucket, request.holder)
        if action == Act.RELEASE_SNAPSHOTS:
            self.snapshots.release(token.name, request.table, request.holder)
        return nullcontext()

    def list_actions(self, context: flight.ServerCallContext) -> list[Any]:
        return [(str(name), action.help) for name, action in ACTIONS.items()]
