# SPDX-License-Identifier: Apache-2.0
"""Which web pages may talk to the server: its own. A browser that shows somebody else's page says so in Host or Origin,
and cannot send JSON across without being allowed to. Where a request has no Origin, as for a picture or a script of
another page, `Sec-Fetch-Site` says whose page it was.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Set
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from lakeward.errors import ForeignCaller, NotJson
from lakeward.protocol.routes import API, ICEBERG, LEASED_TYPE, OAUTH, PROTOCOL_HEADER, TABLE_ROWS

_CHANGING = frozenset({"POST", "PUT", "PATCH"})
"""A page may not send any other method to a foreign server without asking; we never say yes."""

_ROWS = TABLE_ROWS.rpartition("/")[2]
_ROW_TYPES = frozenset(
    (
        "application/x-ndjson",
        "application/jsonl",
        "application/jsonlines",
        "text/csv",
        "application/vnd.apache.arrow.stream",
    )
)
"""Bodies of rows. A page cannot send these across without being allowed to, as with JSON."""

_FORM = frozenset({"application/x-www-form-urlencoded"})
"""A page may send one across: the call that takes it changes nothing and believes the secret in it alone."""

_LEASED = frozenset({LEASED_TYPE})

_OWN_SITES = frozenset({"same-origin", "none"})
"""Accepted values of `Sec-Fetch-Site`: our own page, and an address that a person typed."""


@dataclass(frozen=True, kw_only=True)
class Callers:
    """`names` None: any Host, which is right where each call needs a token. Addresses always count as ours: a page has
    to come by a name of its own to pretend that we are its server. `pages` may call from another origin."""

    names: frozenset[str] | None = None
    pages: frozenset[str] = frozenset()

    @classmethod
    def of(cls, allowed: Iterable[str], own: Iterable[str], *, has_tokens: bool) -> Callers:
        given = frozenset(name.lower() for name in allowed)
        ours = {"localhost", socket.gethostname().lower(), *(name.lower() for name in own)}
        return cls(names=None if has_tokens and not given else given | ours, pages=given)

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Raises `ForeignCaller`, `NotJson`."""
        host = headers.get("host", "").lower()
        if self.names is not None and not _is_named(host, self.names) and not _is_address(host):
            raise ForeignCaller(header="Host", value=host[:100])
        for origin in headers.getlist("origin"):
            page = urlsplit(origin.lower()).netloc
            if page != host and not _is_named(page, self.pages):
                raise ForeignCaller(header="Origin", value=origin[:100])
        site = headers.get("sec-fetch-site", "none").lower()
        if site not in _OWN_SITES and "origin" not in headers and path.startswith((f"{API}/", f"{ICEBERG}/")):
            raise ForeignCaller(header="Sec-Fetch-Site", value=site[:100])
        types = _FORM if path == OAUTH else _LEASED if path.startswith(f"{ICEBERG}/") else frozenset[str]()
        types = _ROW_TYPES if path.endswith(f"/{_ROWS}") else types
        if method in _CHANGING and not _is_json(headers, types):
            raise NotJson(what=f"{method} {path}", found=headers.get("content-type", "")[:100])


def _is_json(headers: Headers, also: Set[str]) -> bool:
    """JSON, or another type of `also`. A call of a Lakeward client without a body need not name its type: a page cannot
    send the protocol's header either."""
    kind = headers.get("content-type")
    if kind is None:
        return PROTOCOL_HEADER in headers
    name = kind.partition(";")[0].strip().lower()
    return name == "application/json" or name in also


def _is_named(place: str, names: frozenset[str]) -> bool:
    """A name without a port allows every port."""
    return bool(place) and (place in names or _host(place) in names)


def _is_address(place: str) -> bool:
    try:
        ipaddress.ip_address(_host(place))
    except ValueError:
        return False
    return True


def _host(place: str) -> str:
    return place[1:].partition("]")[0] if place.startswith("[") else place.rpartition(":")[0] or place
