# SPDX-License-Identifier: Apache-2.0
"""The kind `postgres`: its options, and the settings that the server stores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from lakeward.errors import InvalidRequest
from lakeward.spi.source import SourceKind, SourceOption, State

if TYPE_CHECKING:
    from lakeward.source.postgres.source import PostgresSource

_DATABASE = re.compile(r"[A-Za-z0-9_-]+")
RESNAPSHOT = "resnapshot"


class PostgresKind(SourceKind):
    name, extra = "postgres", "postgres"
    options = (
        SourceOption(name="tables", help="patterns as public.*,sales.orders."),
        SourceOption(name="exclude", help="tables that are left out."),
        SourceOption(name="text", help="columns stored as their text, as public.t.c."),
        SourceOption(
            name=RESNAPSHOT, help="read every table again, with a new slot.", kind=bool, default=False, is_for_run=True
        ),
    )

    def configure(self, url: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        address = urlsplit(url)
        if address.scheme not in ("postgres", "postgresql") or not address.path.strip("/"):
            raise InvalidRequest(
                what=f"source {without_password(url)}", reason="write postgres://user@host:5432/database"
            )
        to = options.get("to")
        if not isinstance(to, str) or not _DATABASE.fullmatch(to):
            raise InvalidRequest(what="--to", reason="name the Lakeward database that the tables go to, as --to shop")
        patterns = _listed(options.get("tables")) or ["public.*"]
        config = {
            "url": without_password(url),
            "tables": [p if "." in p else f"public.{p}" for p in patterns],
            "exclude": [p if "." in p else f"public.{p}" for p in _listed(options.get("exclude"))],
            "text": _listed(options.get("text")),
            "to": to,
            "buckets": int(options.get("buckets") or 1),
        }
        return {**config, **({"freshness": options["freshness"]} if options.get("freshness") else {})}

    def start_state(self, options: Mapping[str, Any]) -> State | None:
        return {RESNAPSHOT: True} if options.get(RESNAPSHOT) else None

    def open(self, config: Mapping[str, Any], secret: str | None = None) -> PostgresSource:
        from lakeward.source.postgres.source import PostgresSource

        return PostgresSource(config, secret or str(config["url"]))


def without_password(url: str) -> str:
    address = urlsplit(url)
    user, _, host = address.netloc.rpartition("@")
    user = user.partition(":")[0]
    query = urlencode([(k, v) for k, v in parse_qsl(address.query) if k not in ("password", "sslpassword")])
    return urlunsplit(("postgresql", f"{user}@{host}" if user else host, address.path, query, ""))


def _listed(value: Any) -> list[str]:
    texts = value.split(",") if isinstance(value, str) else list(value or ())
    return [str(text).strip() for text in texts if str(text).strip()]


def load() -> PostgresKind:
    return PostgresKind()
