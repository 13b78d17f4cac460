# SPDX-License-Identifier: Apache-2.0
"""Credentials of the object store that the catalog hands out with a table: short-lived, for the table's own places
alone, and without writes where the caller may not write. They are asked of the store's STS, kept in memory and never
logged."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from fastapi import Response
from pyiceberg.table.metadata import TableMetadata

from lakeward.errors import InvalidConfig, LakeUnavailable
from lakeward.lake.iceberg.meta.tableproperties import PATH_PROPERTIES
from lakeward.model import Clock, SystemClock
from lakeward.protocol.auth import GRANTS, Role
from lakeward.server.iceberg.answers import answer_table
from lakeward.server.iceberg.call import SEPARATOR, CatalogCall, Name

DELEGATION_HEADER, DELEGATION = "x-iceberg-access-delegation", "vended-credentials"
REFRESH_ENDPOINT = "client.refresh-credentials-endpoint"
ROLE, DURATION, ENDPOINT = "vend-role", "vend-duration-s", "vend-endpoint"
_SHORTEST_S, _LONGEST_S, _USUAL_S = 900, 43_200, 3_600
"""Limits of STS, and its default."""

_READS = ("s3:GetObject",)
_WRITES = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")
_S3 = ("s3", "s3a", "s3n")
_PUBLIC = ("s3.endpoint", "s3.region", "client.region", "s3.path-style-access", "s3.force-virtual-addressing")
"""Storage properties that clients may see without credentials."""

_FROM_ENVIRONMENT = {
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "client.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}


def public_storage(properties: Mapping[str, Any]) -> dict[str, str]:
    """Endpoint and region, so that a client needs the URL and nothing else."""
    if str(properties.get("warehouse", "")).partition("://")[0] not in _S3:
        return {}
    public = {k: str(properties[k]) for k in _PUBLIC if k in properties}
    for key, variables in _FROM_ENVIRONMENT.items():
        value = next((os.environ[v] for v in variables if os.environ.get(v)), None)
        if key not in public and value is not None:
            public[key] = value
    return public


@dataclass(frozen=True, kw_only=True)
class VendOptions:
    """Options of an Iceberg lake: the role whose credentials are handed out, for how long, and where STS answers."""

    role: str
    duration_s: int = _USUAL_S
    endpoint: str | None = None
    region: str = "us-east-1"
    storage: Mapping[str, str] = field(default_factory=dict)
    """Public properties of the storage, which clients look for beside the credentials."""

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> VendOptions | None:
        """None where no role is named. Raises `InvalidConfig`."""
        role, duration = properties.get(ROLE), str(properties.get(DURATION, _USUAL_S))
        if not role:
            return None
        if not duration.isdecimal() or not _SHORTEST_S <= int(duration) <= _LONGEST_S:
            reason = f"{duration!r} is not a number of seconds from {_SHORTEST_S} to {_LONGEST_S}"
            raise InvalidConfig(where=f"datalake.iceberg.{DURATION}", reason=reason)
        region = properties.get("s3.region") or properties.get("client.region") or cls.region
        return cls(
            role=str(role),
            duration_s=int(duration),
            endpoint=properties.get(ENDPOINT),
            region=str(region),
            storage={"s3.region": str(region), "client.region": str(region), **public_storage(properties)},
        )


@dataclass(frozen=True, kw_only=True)
class VendedCredentials:
    """`config`: as Iceberg's clients name them."""

    prefix: str
    config: Mapping[str, str]
    ends_at_ms: int

    def to_json(self) -> dict[str, Any]:
        return {"prefix": self.prefix, "config": dict(self.config)}


def plan_policy(places: Iterable[str], *, writes: bool) -> str:
    """A session policy for these places of S3 and nothing else. Pure."""
    statements: list[dict[str, Any]] = []
    for place in sorted(set(places)):
        name, _, path = place.partition("://")[2].partition("/")
        bucket, below = f"arn:aws:s3:::{name}", f"{_literal(path.strip('/'))}/*".removeprefix("/")
        actions = [*_READS, *(_WRITES if writes else ())]
        statements += [
            {"Effect": "Allow", "Action": actions, "Resource": [f"{bucket}/{below}"]},
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [bucket],
                "Condition": {"StringLike": {"s3:prefix": [below]}},
            },
            {"Effect": "Allow", "Action": ["s3:GetBucketLocation"], "Resource": [bucket]},
        ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def _literal(path: str) -> str:
    """Signs that a policy would read as patterns stand for themselves: a table's name must not reach its neighbours."""
    return re.sub(r"[$*?]", lambda sign: f"${{{sign[0]}}}", path)


def find_places(metadata: TableMetadata) -> list[str]:
    """The table's places in S3: its location, and others that its properties name."""
    named = [metadata.location, *(metadata.properties[k] for k in sorted(PATH_PROPERTIES & metadata.properties.keys()))]
    return [place for place in named if place.partition("://")[0] in _S3]


def answer_vended(
    call: CatalogCall,
    table: Name,
    loaded: tuple[str | None, TableMetadata],
    credentials: VendedCredentials | None,
    body: str | None = None,
) -> Response:
    """A loaded table: its location and metadata. Credentials stand twice, as clients of either age look for them; those
    on Java ask the refresh endpoint, a path below the catalog's URI, for new ones."""
    location, metadata = loaded
    if credentials is None:
        return answer_table(location, metadata, {}, body)
    config = {**credentials.config, REFRESH_ENDPOINT: _refresh_path(call, table)}
    return answer_table(location, metadata, config, body, [{"prefix": credentials.prefix, "config": config}])


def _refresh_path(call: CatalogCall, table: Name) -> str:
    warehouse = f"/{quote(call.path['warehouse'], safe='')}" if "warehouse" in call.path else ""
    namespace, name = quote(SEPARATOR.join(table[:-1]), safe=""), quote(table[-1], safe="")
    return f"/v1{warehouse}/namespaces/{namespace}/tables/{name}/credentials"


class CredentialVendor:
    """Thread-safe. The same credentials are given again for the first half of their life."""

    def __init__(self, options: VendOptions, clock: Clock | None = None) -> None:
        self._options, self._clock = options, clock or SystemClock()
        self._lock = threading.Lock()
        self._client: Any = None
        self._issued: dict[tuple[str, str], VendedCredentials] = {}

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> CredentialVendor | None:
        """None where the lake's options name no role. Raises `InvalidConfig`."""
        options = VendOptions.of(properties)
        return None if options is None else cls(options)

    def find(self, call: CatalogCall, metadata: TableMetadata, *, writes: bool) -> VendedCredentials | None:
        """None where the client asks for none, or the table lies outside S3. `writes`: whether its warehouse takes
        any. Raises `LakeUnavailable`."""
        if DELEGATION not in call.headers.get(DELEGATION_HEADER, ""):
            return None
        return self.renew(call, metadata, writes=writes)

    def renew(self, call: CatalogCall, metadata: TableMetadata, *, writes: bool) -> VendedCredentials | None:
        """For a call that asks for credentials and nothing else, which needs no header. As `find` otherwise."""
        return self.vend(metadata, call.token_name, writes=writes and Role.JOB in GRANTS[call.role])

    def vend(self, metadata: TableMetadata, caller: str, *, writes: bool) -> VendedCredentials | None:
        """Raises `LakeUnavailable`."""
        places = find_places(metadata)
        if not places:
            return None
        policy = plan_policy(places, writes=writes)
        with self._lock:
            now_ms = self._clock.now_ms()
            cached = self._issued.get((caller, policy))
            if cached is None or cached.ends_at_ms - now_ms < self._options.duration_s * 500:
                self._issued = {k: c for k, c in self._issued.items() if c.ends_at_ms > now_ms}
                cached = self._issued[caller, policy] = self._ask(metadata.location, caller, policy)
            return cached

    def _ask(self, prefix: str, caller: str, policy: str) -> VendedCredentials:
        session = re.sub(r"[^\w+=,.@-]", "_", f"lakeward-{caller}")[:64]
        role, seconds = self._options.role, self._options.duration_s
        try:
            answer = self._sts().assume_role(
                RoleArn=role, RoleSessionName=session, Policy=policy, DurationSeconds=seconds
            )
        except Exception as error:  # botocore has no root for all that it raises
            reason = f"{type(error).__name__}: {str(error)[:300]}"
            raise LakeUnavailable(lake="iceberg", what=f"credentials of {ROLE} for a client", reason=reason) from error
        issued = answer["Credentials"]
        ends_at_ms = int(issued["Expiration"].timestamp() * 1_000)
        config = {
            **self._options.storage,
            "s3.access-key-id": issued["AccessKeyId"],
            "s3.secret-access-key": issued["SecretAccessKey"],
            "s3.session-token": issued["SessionToken"],
            "s3.session-token-expires-at-ms": str(ends_at_ms),
        }
        return VendedCredentials(prefix=prefix, config=config, ends_at_ms=ends_at_ms)

    def _sts(self) -> Any:
        """The server's own credentials come from its environment."""
        if self._client is None:
            import boto3

            options = self._options
            self._client = boto3.client("sts", endpoint_url=options.endpoint, region_name=options.region)
        return self._client
