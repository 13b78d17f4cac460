# SPDX-License-Identifier: Apache-2.0
"""Who may do what: tokens with a name, a role and perhaps tables, the same for HTTP, Flight and the Iceberg catalog."""

from __future__ import annotations

import hmac
import logging
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from lakeward.errors import Forbidden, InvalidConfig, Unauthorized
from lakeward.model import TablePath


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


_PATTERN = r"[A-Za-z0-9_*-]+\.[A-Za-z0-9_*-]+"
_LIMITED = re.compile(rf"(?P<secret>.+):(?P<tables>{_PATTERN}(\+{_PATTERN})*)")


@dataclass(frozen=True, kw_only=True)
class Token:
    """`tables`: those it is good for, as `shop.*` or `shop.orders`; empty: all of them."""

    name: str
    role: Role
    secret: str
    tables: tuple[str, ...] = ()
    expires_at_s: float | None = None
    """Seconds since 1970; None: it does not expire."""

    @classmethod
    def parse(cls, text: str) -> Token:
        """`name:role:secret` or `name:role:secret:shop.*+crm.orders`, as configuration spells it."""
        name, _, rest = text.partition(":")
        role, _, secret = rest.partition(":")
        limited = _LIMITED.fullmatch(secret)
        if not (name and secret and role in set(Role)):
            raise InvalidConfig(
                where="server.tokens",
                reason="write each token as name:role:secret with role read, write, job or admin, and perhaps :shop.* "
                "behind it",
            )
        if limited is None:
            return cls(name=name, role=Role(role), secret=secret)
        if role == Role.JOB:
            reason = f"token {name}: a job works on every table, so its token cannot be limited to some"
            raise InvalidConfig(where="server.tokens", reason=reason)
        return cls(name=name, role=Role(role), secret=limited["secret"], tables=tuple(limited["tables"].split("+")))

    def may_use(self, table: TablePath | str) -> bool:
        return not self.tables or any(fnmatchcase(str(table), pattern) for pattern in self.tables)

    def may_see(self, database: str) -> bool:
        """It has a table there that it may use, or may have one."""
        return not self.tables or any(fnmatchcase(database, p.partition(".")[0]) for p in self.tables)

    def check_role(self, needed: Role, what: str) -> None:
        """Raises `Forbidden`."""
        if needed not in GRANTS[self.role]:
            raise self.refuse(what, str(needed))

    def check_table(self, table: TablePath | str, what: str) -> None:
        """Raises `Forbidden`."""
        if not self.may_use(table):
            raise self.refuse(what, f"a right to table {table}")

    def check_database(self, database: str, what: str) -> None:
        """All of it. Raises `Forbidden`."""
        if self.tables and not any(p.endswith(".*") and fnmatchcase(database, p[:-2]) for p in self.tables):
            raise self.refuse(what, f"a right to all of {database}")

    def check_all(self, what: str) -> None:
        """Raises `Forbidden` for a token that is good for some tables only."""
        if self.tables:
            raise self.refuse(what, "a token for all tables")

    def refuse(self, what: str, needed: str) -> Forbidden:
        """To be raised."""
        return Forbidden(token_name=self.name, role=str(self.role), what=what, needed=needed)

    def __repr__(self) -> str:
        return f"Token(name={self.name!r}, role={self.role!s})"


ANONYMOUS = Token(name="anonymous", role=Role.ADMIN, secret="")
"""Everybody, where no token is configured (loopback only)."""

RESERVED_NAMES = frozenset({ANONYMOUS.name, "nobody"})
"""Names that the server uses for callers without a token."""


class TokenIssuer(Protocol):
    """Checks tokens that are not listed here."""

    def identify(self, secret: str, what: str) -> Token | None:
        """The caller's token; None for a secret that is not one of the issuer's kind. Does not block. Raises
        `Unauthorized` with the reason, and `IssuerUnavailable`."""


@dataclass(frozen=True)
class TokenSet:
    """The tokens that a server accepts. Without any, a file of them or an issuer every caller is `ANONYMOUS`."""

    given: tuple[Token, ...] = ()
    file: TokenFile | None = None
    issuer: TokenIssuer | None = None

    @classmethod
    def parse(cls, texts: Iterable[str], file: TokenFile | None = None, issuer: TokenIssuer | None = None) -> TokenSet:
        return cls(tuple(Token.parse(t) for t in texts), file, issuer)

    @property
    def is_open(self) -> bool:
        return not self.given and self.file is None and self.issuer is None

    def known(self) -> tuple[Token, ...]:
        """Each has its secret in it: to be shown by name alone."""
        return self.given if self.file is None else (*self.given, *self.file.current())

    def identify(self, secret: str | None, what: str) -> Token:
        """The caller's token. Raises `Unauthorized`, and `IssuerUnavailable` while an issuer's keys are not known.
        Compares in constant time, every token each time."""
        if self.is_open:
            return ANONYMOUS
        matched_token = None
        shown = (secret or "").encode(errors="backslashreplace")
        for token in self.known():
            if hmac.compare_digest(token.secret.encode(), shown):
                matched_token = token
        if matched_token is None and self.issuer is not None and secret:
            matched_token = self.issuer.identify(secret, what)
            if matched_token is not None and matched_token.name in {token.name for token in self.known()}:
                raise Unauthorized(what=what, reason=f"{matched_token.name} is the name of a token in server.tokens")
        if matched_token is None:
            raise Unauthorized(what=what)
        return matched_token

    def authorize(self, secret: str | None, needed: Role, what: str) -> Token:
        """The same with a role. Raises `Unauthorized` or `Forbidden`."""
        token = self.identify(secret, what)
        token.check_role(needed, what)
        return token


log = logging.getLogger(__name__)
KEY = "server.token-file"


class TokenFile:
    """Threads share it. A file that cannot be read, or not as tokens, leaves those in force that were read last."""

    def __init__(self, path: Path) -> None:
        """Raises `InvalidConfig`, also for a file without any token: that would let everybody in."""
        self._path, self._lock = path, threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._tokens: tuple[Token, ...] = ()
        try:
            self._read(self._stamp())
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig(where=KEY, reason=str(error)) from error
        if not self._tokens:
            raise InvalidConfig(where=KEY, reason=f"{path} names no token; write one name:role:secret a line")

    def current(self) -> tuple[Token, ...]:
        """A look at the file's stamp, and a read when it is another."""
        with self._lock:
            try:
                stamp = self._stamp()
                if stamp != self._seen:
                    self._read(stamp)
                    log.info("%s was read again: %d tokens", self._path, len(self._tokens))
            except (OSError, UnicodeDecodeError, InvalidConfig) as error:
                log.warning("%s cannot be read, the tokens before it stay: %s", self._path, error)
            return self._tokens

    def _stamp(self) -> tuple[int, int, int]:
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(self, stamp: tuple[int, int, int]) -> None:
        from lakeward.protocol.auth import Token

        self._seen = stamp
        lines = [line.strip() for line in self._path.read_text().splitlines()]
        self._tokens = tuple(Token.parse(line) for line in lines if line and not line.startswith("#"))
