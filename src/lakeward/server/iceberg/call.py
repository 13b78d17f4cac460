# SPDX-License-Identifier: Apache-2.0
"""One call to the Iceberg catalog: its path, query and body, checked as far as names go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel

from lakeward.errors import Forbidden, InvalidRequest
from lakeward.protocol.auth import ANONYMOUS, Role, Token
from lakeward.protocol.codec import load_json

Name = tuple[str, ...]
"""A namespace, or a table in one."""

CheckLake = Callable[[Token, Name], None]
"""Raises `Forbidden` where a token may not put tables of a namespace into this lake."""

Message = TypeVar("Message", bound=BaseModel)

SEPARATOR = "\x1f"
"""Iceberg's own between the levels of a namespace in a path."""

_NAME_LIMIT = 200


@dataclass(frozen=True, kw_only=True)
class CatalogCall:
    path: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case names."""

    body: bytes = b""
    token: Token = ANONYMOUS
    is_own: bool = False
    """Made by a part of Lakeward, not by another engine."""

    @property
    def role(self) -> Role:
        return self.token.role

    @property
    def token_name(self) -> str:
        return self.token.name

    def check_table(self, name: tuple[str, ...]) -> None:
        """Raises `Forbidden`."""
        self.token.check_table(".".join(name), "this call")

    def check_namespace(self, name: tuple[str, ...]) -> None:
        """Raises `Forbidden`."""
        self.token.check_database(".".join(name), "this call")

    def has_all_of(self, namespace: tuple[str, ...]) -> bool:
        try:
            self.check_namespace(namespace)
        except Forbidden:
            return False
        return True

    @property
    def namespace(self) -> tuple[str, ...]:
        return check_namespace(self.path["namespace"].split(SEPARATOR))

    @property
    def table(self) -> tuple[str, ...]:
        return (*self.namespace, check_name("table", self.path["table"]))

    def parsed(self, kind: type[Message], body: dict[str, Any]) -> Message:
        """The body as one of PyIceberg's messages, whose own checks fall over some values. Raises `InvalidRequest`."""
        try:
            return kind.model_validate(body)
        except (AttributeError, TypeError, KeyError) as error:
            raise InvalidRequest(what="request body", reason=f"no {kind.__name__}: {str(error)[:200]}") from error

    def json(self) -> dict[str, Any]:
        body = load_json(self.body, "request body")
        if not isinstance(body, dict):
            raise InvalidRequest(what="request body", reason="a JSON object is expected")
        return body


def check_namespace(levels: Any) -> tuple[str, ...]:
    if not isinstance(levels, list) or not levels:
        raise InvalidRequest(what="namespace", reason="a list with one name or more is expected")
    return tuple(check_name("namespace", level) for level in levels)


def check_name(what: str, name: Any) -> str:
    """Names become folder names."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _NAME_LIMIT
        or name in (".", "..")
        or any(c in name for c in "/\\\x00\x1f.")
    ):
        reason = f"a name has 1 to {_NAME_LIMIT} characters and no slash, dot or control sign in it"
        raise InvalidRequest(what=f"{what} {name!r}", reason=reason)
    return name


def identifier_of(body: Any, what: str) -> tuple[str, ...]:
    """`{"namespace": [...], "name": ...}` as a tuple."""
    if not isinstance(body, dict):
        raise InvalidRequest(what=what, reason="an object with namespace and name is expected")
    return (*check_namespace(body.get("namespace")), check_name("table", body.get("name")))
