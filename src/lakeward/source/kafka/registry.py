# SPDX-License-Identifier: Apache-2.0
"""Confluent's schema registry protocol: schemas by id and by subject, with what they refer to, and the frames of
messages that name a schema by its id."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from lakeward.errors import InvalidRequest, SourceStopped, SourceUnavailable

AUTH_VARIABLE = "LAKEWARD_SCHEMA_REGISTRY_AUTH"
"""`user:password`, or `Bearer` and a token. It is not stored on the server."""

ANSWER_S = 10
MOST_BYTES = 16 << 20
_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"


class UnknownSchema(ValueError):
    """The registry has no such schema."""


@dataclass(frozen=True)
class RegisteredSchema:
    """`references`: name -> schema that this one uses under that name."""

    text: str
    kind: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()


class _NoRedirects(HTTPRedirectHandler):
    """Credentials are for the named host alone."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


@dataclass(frozen=True)
class SchemaRegistry:
    """One registry, as one source uses it. Equal ones share what they have read: schemas never change."""

    url: str
    source: str = ""
    credentials: str = field(default="", repr=False)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Raises `UnknownSchema`, `SourceStopped`, `SourceUnavailable`."""
        return _load_schema(self, f"/schemas/ids/{schema_id}")

    def latest(self, subject: str) -> RegisteredSchema:
        """Raises as `schema` does."""
        return self._schema_of(self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest?format=serialized"))

    def _schema_of(self, body: Mapping[str, Any]) -> RegisteredSchema:
        references = tuple(
            (
                str(used["name"]),
                _load_schema(self, f"/subjects/{quote(used['subject'], safe='')}/versions/{used['version']}"),
            )
            for used in body.get("references") or ()
        )
        return RegisteredSchema(str(body["schema"]), str(body.get("schemaType") or "AVRO"), references)

    def _ask(self, path: str) -> Any:
        headers = {"Accept": _ACCEPTED}
        if self.credentials:
            is_token = self.credentials.startswith("Bearer ")
            login = base64.b64encode(self.credentials.encode()).decode()
            headers["Authorization"] = self.credentials if is_token else f"Basic {login}"
        request = Request(self.url.rstrip("/") + path, headers=headers)  # noqa: S310 - `check_url` has seen it
        try:
            with build_opener(_NoRedirects()).open(request, timeout=ANSWER_S) as answer:
                return json.loads(answer.read(MOST_BYTES))
        except HTTPError as error:
            self._refuse(path, error.code)
            raise self._unavailable(path, error) from error
        except (OSError, ValueError, RecursionError) as error:
            raise self._unavailable(path, error) from error

    def _refuse(self, path: str, status: int) -> None:
        if status == HTTPStatus.NOT_FOUND:
            raise UnknownSchema(f"the schema registry has no {path.partition('?')[0]}")
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise SourceStopped(
                source=self.source,
                where=f"schema registry {self.url}",
                reason=f"it refuses the credentials ({status})",
                advice=f"Set {AUTH_VARIABLE} to user:password, or to `Bearer` and a token, and ingest again",
            )

    def _unavailable(self, path: str, error: Exception) -> SourceUnavailable:
        return SourceUnavailable(source=self.source, origin=f"schema registry {self.url}", reason=f"{path}: {error}")


@lru_cache(2000)
def _load_schema(registry: SchemaRegistry, path: str) -> RegisteredSchema:
    return registry._schema_of(registry._ask(f"{path}?format=serialized"))


def open_registry(config: Mapping[str, Any]) -> SchemaRegistry | None:
    """The registry that a source's configuration names; called by the driver and by Spark's tasks."""
    url = config.get("schema_registry")
    if not url:
        return None
    return SchemaRegistry(str(url), str(config.get("source", "")), str(config.get("registry_auth", "")))


def check_url(url: str) -> None:
    """Raises `InvalidRequest` for what is no URL of a registry, and for one with a password: it would be stored."""
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise InvalidRequest(what="--schema-registry", reason="write http://host:8081 or https://host")
    if "@" in address.netloc:
        reason = f"its URL is stored on the server: put user:password into {AUTH_VARIABLE} instead"
        raise InvalidRequest(what="--schema-registry", reason=reason)


def load_credentials() -> str:
    return os.environ.get(AUTH_VARIABLE, "")


def schema_id(value: bytes) -> int:
    """The id in front of a framed message, which is a zero byte and four bytes. Raises `ValueError`."""
    if value[:1] != b"\0" or len(value) < 5:
        raise ValueError("it does not begin with a schema id")
    return int.from_bytes(value[1:5])


def topic_schema(registry: SchemaRegistry, topic: str, samples: list[bytes]) -> RegisteredSchema:
    """The newest schema of the topic's subject, or of its messages where the producer names subjects otherwise. Raises
    `InvalidRequest`, `SourceStopped`, `SourceUnavailable`."""
    try:
        return registry.latest(f"{topic}-value")
    except UnknownSchema as error:
        for sample in reversed(samples):
            try:
                return registry.schema(schema_id(sample))
            except ValueError:
                continue
        reason = f"{error}, and no message of the topic names a schema; name the columns with --columns"
        raise InvalidRequest(what=f"topic {topic}", reason=reason) from error
