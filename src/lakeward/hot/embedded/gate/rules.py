# SPDX-License-Identifier: Apache-2.0
"""Which calls the gate lets in, and how long their messages may be."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.errors import InvalidRequest, LakewardError
from lakeward.hot.embedded.gate.headerblock import Field
from lakeward.protocol.auth import TokenSet

PEER = b"lakeward-peer"
"""The header in which the gate tells the server whose call it is. Nobody else's is passed on."""

BEARER = b"bearer "
_SERVICE = b"/arrow.flight.protocol.FlightService/"
_STREAMED = frozenset({_SERVICE + b"DoPut", _SERVICE + b"DoExchange", _SERVICE + b"Handshake"})
"""Methods of any number of messages; all others have one."""

BESIDE_BATCH = 4 << 20
"""What a put's message holds beside the batch: its header, padding of each buffer, the descriptor."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """`max_unpacked`: for calls whose messages are batches, the bytes of one once it is unpacked."""

    method: str
    token_name: str
    max_bytes: int
    max_messages: int | None
    max_unpacked: int | None = None


@dataclass(frozen=True, kw_only=True)
class Rules:
    """`batch_bytes` for a message of a put, `ticket_bytes` for one of any other call."""

    tokens: TokenSet
    batch_bytes: int
    ticket_bytes: int

    def admit(self, fields: list[Field]) -> Call:
        """Raises `Unauthorized`."""
        path, secret = b"", None
        for name, value in fields:
            if name == b":path":
                path = value
            elif name == b"authorization" and secret is None and value[: len(BEARER)].lower() == BEARER:
                secret = value[len(BEARER) :].strip().decode(errors="backslashreplace")
        method = path.removeprefix(_SERVICE).decode(errors="replace")[:60]
        token = self.tokens.identify(secret, method)
        is_put = path == _SERVICE + b"DoPut"
        return Call(
            method=method,
            token_name=token.name,
            max_bytes=self.batch_bytes + BESIDE_BATCH if is_put else self.ticket_bytes,
            max_messages=None if path in _STREAMED else 1,
            max_unpacked=self.batch_bytes if is_put else None,
        )


def refuse_message(call: Call, number: int, is_packed: bool, size: int) -> LakewardError | None:
    """Why the `number`th message of a call is not taken, if so."""
    if is_packed:
        reason = "gRPC's own compression is not taken: a small message could unpack into a large one"
    elif size > call.max_bytes:
        reason = f"a message of {size} bytes came, at most {call.max_bytes} are taken; send smaller ones"
    elif call.max_messages is not None and number > call.max_messages:
        reason = f"{call.max_messages} message was due, more came"
    else:
        return None
    return InvalidRequest(what=call.method, reason=reason)
