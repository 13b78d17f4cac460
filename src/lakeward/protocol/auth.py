# SPDX-License-Identifier: Apache-2.0
"""Who may do what: tokens with a name and a role, the same for HTTP, Flight and the Iceberg catalog."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lakeward.errors import Forbidden, InvalidConfig, Unauthorized


class Role(StrEnum):
    READ = "read"
    WRITE = "write"
    JOB = "job"
    ADMIN = "admin"


GRANTS: dict[Role, frozenset[Role]] = {
    Role.READ: frozenset({Role.READ}),
    Role.WRITE: frozenset({Role.READ, Role.WRITE}),
    Role.JOB: frozenset({Role.READ, Role.JOB}),
    Role.ADMIN: frozenset(Role),
}
"""Role -> the roles whose calls it may make."""


@dataclass(frozen=True, kw_only=True)
class Token:
    name: str
    role: Role
    secret: str

    @classmethod
    def parse(cls, text: str) -> Token:
        """`name:role:secret`, as configuration spells it."""
        name, _, rest = text.partition(":")
        role, _, secret = rest.partition(":")
        if not (name and secret and role in set(Role)):
            raise InvalidConfig(
                where="server.tokens", reason="write each token as name:role:secret with role read, write, job or admin"
            )
        return cls(name=name, role=Role(role), secret=secret)

    def __repr__(self) -> str:
        return f"Token(name={self.name!r}, role={self.role!s})"


ANONYMOUS = Token(name="anonymous", role=Role.ADMIN, secret="")
"""Everybody, where no token is configured (loopback only)."""


@dataclass(frozen=True)
class TokenSet:
    """The tokens a server knows. Empty: every caller is `ANONYMOUS`."""

    tokens: tuple[Token, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> TokenSet:
        return cls(tuple(Token.parse(t) for t in texts))

    def authorize(self, secret: str | None, needed: Role, what: str) -> Token:
        """The caller's token. Raises `Unauthorized` or `Forbidden`. Compares in constant time,
        every token each time.
        """
        if not self.tokens:
            return ANONYMOUS
        found = None
        for token in self.tokens:
            if hmac.compare_digest(token.secret.encode(), (secret or "").encode()):
                found = token
        if found is None:
            raise Unauthorized(what=what)
        if needed not in GRANTS[found.role]:
            raise Forbidden(token_name=found.name, role=str(found.role), what=what, needed=str(needed))
        return found
