# SPDX-License-Identifier: Apache-2.0
"""A catalog that hands out credentials for two minutes, and a store that takes no others: proxies in front of real
ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlparse

from lakeward.model import Clock
from lakeward_testing.httpproxy import HttpProxy, ProxyAnswer, ProxyRequest
from tests.kit.iceberg.s3 import REGION, s3_store
from tests.kit.iceberg.server import serving

LASTS_MS = 120_000
_EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"


class CredentialGate(HttpProxy):
    """In front of a store: refuses calls without a token that it gave and that lasts yet."""

    def __init__(self, target: str, clock: Clock) -> None:
        self._clock = clock
        self.ends_at_ms: dict[str, int] = {}
        self.refused: list[str] = []
        super().__init__(target)

    def issue(self) -> dict[str, str]:
        with self._lock:
            token = f"vended-{len(self.ends_at_ms)}-XYZZY"
            self.ends_at_ms[token] = ends_at_ms = self._clock.now_ms() + LASTS_MS
        return {
            "s3.endpoint": self.url,
            "s3.region": REGION,
            "s3.access-key-id": "id-XYZZY",
            "s3.secret-access-key": "secret-XYZZY",
            "s3.session-token": token,
            "s3.session-token-expires-at-ms": str(ends_at_ms),
        }

    def treat(self, request: ProxyRequest) -> ProxyAnswer | None:
        given = {name.lower(): value for name, value in request.headers.items()}.get("x-amz-security-token", "")
        if self._clock.now_ms() >= self.ends_at_ms.get(given, 0):
            self.refused.append(f"{request.method} {request.path} {given}")
            return ProxyAnswer(403, {"content-type": "application/xml"}, _EXPIRED)
        return self.send(request)


class VendingProxy(HttpProxy):
    """In front of a catalog: every answer that holds a table comes with new credentials."""

    def __init__(self, target: str, gate: CredentialGate) -> None:
        parsed = urlparse(target)
        self._path, self._gate = parsed.path, gate
        super().__init__(f"{parsed.scheme}://{parsed.netloc}")

    @property
    def url(self) -> str:
        return super().url + self._path

    def treat(self, request: ProxyRequest) -> ProxyAnswer | None:
        answer = self.send(request)
        if answer is None or answer.status != 200 or b'"metadata"' not in answer.body[:2_000]:
            return answer
        body = json.loads(answer.body)
        credentials = {"prefix": body["metadata"]["location"], "config": self._gate.issue()}
        return replace(answer, body=json.dumps({**body, "config": {}, "storage-credentials": [credentials]}).encode())


@dataclass(frozen=True)
class VendingWorld:
    url: str
    gate: CredentialGate

    @property
    def options(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.url}


@contextmanager
def vending_catalog(database: str, clock: Clock) -> Iterator[VendingWorld]:
    """`database`: the path of the catalog's file."""
    with s3_store() as store:
        options = {"type": "sql", "uri": f"sqlite:///{database}", "warehouse": store.new_bucket(), **store.options}
        with serving(options, environment=store.environment) as url:
            gate = CredentialGate(store.endpoint, clock)
            catalog = VendingProxy(url, gate)
            try:
                yield VendingWorld(catalog.url, gate)
            finally:
                catalog.close()
                gate.close()
