# SPDX-License-Identifier: Apache-2.0
"""What the server tells its gate at start, over a pipe: nothing of it is on a command line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class GateLimits:
    """`header_s` from a connection's begin to its first call that is let in, and between two pieces of a frame;
    `idle_s` for a call whose client sends nothing more, and for a connection without calls; `streams` of one token.
    """

    batch_bytes: int = 64 << 20
    ticket_bytes: int = 16 << 20
    connections: int = 1000
    connections_per_peer: int = 250
    streams: int = 400
    header_s: float = 20.0
    idle_s: float = 600.0


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """`listener` is a descriptor that the process inherits; `inner` the path of the Flight server's socket; `tokens` as
    configuration spells them; `certificate` and `key` are PEM texts.
    """

    listener: int
    inner: str
    limits: GateLimits
    tokens: tuple[str, ...] = ()
    token_file: str | None = None
    certificate: str | None = None
    key: str | None = None

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> GateSettings:
        said = json.loads(line)
        return cls(**{**said, "limits": GateLimits(**said["limits"]), "tokens": tuple(said["tokens"])})
