# SPDX-License-Identifier: Apache-2.0
"""The Flight server: authorises each call, then hands it to put, get or actions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Protocol

from lakeward.errors import InvalidRequest, LakewardError
from lakeward.hot.embedded.serve.actions import ACTIONS, answer, find_action
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.calls import CallWatch, FlightCall
from lakeward.hot.embedded.serve.consumers import Consumers, count_reached
from lakeward.hot.embedded.serve.drain import CallDrain
from lakeward.hot.embedded.serve.flightdata import read_command, read_fields, read_flight_data, read_schema, write_field
from lakeward.hot.embedded.serve.get import open_read
from lakeward.hot.embedded.serve.grpcserver import FlightLimits, GrpcServer, Method, Refused, TlsPair
from lakeward.hot.embedded.serve.packing import PackedReads
from lakeward.hot.embedded.serve.put import PutStream
from lakeward.hot.embedded.serve.quota import SnapshotQuotas, StreamQuotas, WriterQuotas
from lakeward.hot.embedded.serve.status import CallEnded, answering
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import TablePath
from lakeward.protocol.auth import Role, Token, TokenSet
from lakeward.protocol.flight import Act, ActionRequest, PutCommand, Read, Ticket, from_bytes


class Audited(Protocol):
    """Where calls are recorded. The server's audit log has this shape."""

    def flight(self, who: str, peer: str, what: str, table: str | None, result: str, *, is_change: bool) -> None: ...


class FlightService:
    """Listens as soon as it is made, and lets calls in once `gate` is open.

    `gate.drain()` ends its work; `shutdown()` ends the calls of all peers, idle ones included."""

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
        on_refused: Refused = lambda error, peer, method: None,
        quotas: StreamQuotas | None = None,
        writers: WriterQuotas | None = None,
        limits: FlightLimits | None = None,
        is_open: bool = True,
        consumers: Consumers | None = None,
    ) -> None:
        """Raises `OSError`, and `InvalidConfig` for a certificate that cannot be used."""
        self.store, self.tokens, self.budget, self.audit = store, tokens, budget or MemoryBudget(), audit
        self.answers = self.budget.of_answers()
        self.snapshots, self.writers = SnapshotQuotas(), writers or WriterQuotas()
        self.packs = PackedReads()
        self.consumers, self.limits = consumers or Consumers(), limits or FlightLimits()
        self.gate = CallDrain(f"{host}:{port}", is_open=is_open)
        self.watch = CallWatch(min(self.limits.header_s, self.limits.idle_s), self._write_limit_s)
        methods: dict[str, Method] = {
            "DoPut": self._do_put,
            "DoGet": self._do_get,
            "DoAction": self._do_action,
            "ListActions": self._list_actions,
        }
        self.grpc = GrpcServer(
            methods,
            tokens,
            quotas or StreamQuotas(),
            self.watch,
            self.limits,
            on_refused,
            host=host,
            port=port,
            tls=tls,
        )
        self.port = self.grpc.port
        self.watch.thread.start()

    def shutdown(self) -> None:
        """Waits for what is in work."""
        self.grpc.stop()
        self.watch.thread.stop()

    def _write_limit_s(self) -> float:
        """A peer that does not read its answer gives up its memory to waiting calls after this time."""
        return self.limits.header_s if self.answers.waiting else self.limits.idle_s

    def _message(self, call: FlightCall, what: str) -> bytes:
        """The one message of a call. Raises `InvalidRequest` for one that is too long or missing."""
        message = call.read(self.limits.header_s)
        if message is None:
            raise InvalidRequest(what=what, reason="a message was due, none came")
        if len(message) > self.limits.ticket_bytes:
            reason = f"a message of {len(message)} bytes came, at most {self.limits.ticket_bytes} are taken"
            raise InvalidRequest(what=what, reason=f"{reason}; send smaller ones")
        return message

    @contextmanager
    def _recorded(self, call: FlightCall, what: str, table: TablePath | None, *, is_change: bool) -> Iterator[None]:
        if self.audit is None:
            yield
            return
        result = "ok"
        try:
            yield
        except LakewardError as error:
            result = error.code
            raise
        except CallEnded:
            result = "ended"
            raise
        except Exception:
            result = "failed"
            raise
        finally:
            shown = None if table is None else str(table)
            self.audit.flight(call.token.name, call.peer, what, shown, result, is_change=is_change)

    def _do_put(self, call: FlightCall) -> None:
        call.token.check_role(Role.WRITE, "do_put")
        message = call.read(self.limits.header_s)
        if message is None:
            raise InvalidRequest(what="do_put", reason="a schema was due, nothing came")
        first = read_flight_data(message, "do_put")
        command = from_bytes(PutCommand, read_command(first.descriptor))
        with self._recorded(call, f"put {command.kind}", command.table, is_change=True):
            call.token.check_table(command.table, "do_put")
            with self.gate.inside():
                budget, begin = self.budget.of(call.token.name), partial(self.writers.begin, call.token.name)
                stream = PutStream(self.store, self.gate, budget, command, read_schema(first), begin)
            messages = iter(lambda: call.read(self.limits.idle_s), None)
            stream.serve(messages, call.write)

    def _do_get(self, call: FlightCall) -> None:
        call.token.check_role(Role.READ, "do_get")
        ticket = from_bytes(Ticket, bytes(read_fields(self._message(call, "do_get"), "do_get").get(1, b"")))
        with self._recorded(call, f"get {ticket.kind}", ticket.table, is_change=False), self.gate.inside():
            call.token.check_table(ticket.table, "do_get")
            budget = self.budget.of(call.token.name)
            read = open_read(self.store, ticket, budget, lambda: call.is_ended() or not self.gate.is_open, self.packs)
            self._note(call, ticket)
        read.serve(call.write, self.answers.of(call.token.name))

    def _note(self, call: FlightCall, ticket: Ticket) -> None:
        """Records a read that was opened, so its table exists."""
        if ticket.kind is Read.TAIL:
            reached = count_reached(ticket.offsets or {}, self.store.bounds(self.store.load_table(ticket.table)))
            self.consumers.note(ticket.table_id, call.token.name, call.peer, reached)
        elif ticket.kind is Read.LOOKUP:
            self.consumers.note_read(ticket.table_id)

    def _do_action(self, call: FlightCall) -> None:
        fields = read_fields(self._message(call, "action"), "action")
        name = str(bytes(fields.get(1, b"")), errors="replace")
        what = f"action {name[:100]}"
        call.token.check_role(find_action(name).role, what)
        request = from_bytes(ActionRequest, bytes(fields.get(2, b"")) or b"{}")
        with self._recorded(call, what, request.table, is_change=False), self.gate.inside(), answering(what):
            if request.table is not None:
                call.token.check_table(request.table, what)
            with self._counted(name, request, call.token):
                call.write(write_field(1, json.dumps(answer(self.store, name, request, call.token)).encode()))

    def _counted(self, action: str, request: ActionRequest, token: Token) -> AbstractContextManager[None]:
        if request.table is None:
            return nullcontext()
        if action == Act.TAKE_SNAPSHOT and request.bucket is not None:
            return self.snapshots.taking(token.name, request.table, request.bucket, request.holder)
        if action == Act.RELEASE_SNAPSHOTS:
            self.snapshots.release(token.name, request.table, request.holder)
        return nullcontext()

    def _list_actions(self, call: FlightCall) -> None:
        for name, action in ACTIONS.items():
            call.write(write_field(1, name.encode()) + write_field(2, action.help.encode()))
