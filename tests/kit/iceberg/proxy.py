# SPDX-License-Identifier: Apache-2.0
"""A proxy that loses or doubles commits on their way to a catalog: for outcomes that nobody told us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from urllib.parse import urlparse

from lakeward_testing.httpproxy import HttpProxy, ProxyAnswer, ProxyRequest


class Mischief(StrEnum):
    LOSE_REQUEST = "lose-request"
    """The commit never reaches the catalog; the client sees the connection end."""

    LOSE_ANSWER = "lose-answer"
    """The commit takes place; the client sees the connection end."""

    FAIL_AFTER = "fail-after"
    """The commit takes place; a gateway in between answers 502."""

    SEND_TWICE = "send-twice"
    """A retry below us: the commit is sent again after it took place, and the second answer arrives."""


class CatalogProxy(HttpProxy):
    """`arm` decides what happens to the next commits, in turn; everything else passes."""

    def __init__(self, target: str) -> None:
        parsed = urlparse(target)
        self._path = parsed.path
        self._armed: list[Mischief] = []
        self.commits = 0
        super().__init__(f"{parsed.scheme}://{parsed.netloc}")

    @property
    def url(self) -> str:
        return super().url + self._path

    def arm(self, *mischief: Mischief) -> None:
        with self._lock:
            self._armed += mischief

    def treat(self, request: ProxyRequest) -> ProxyAnswer | None:
        mischief = self._take(request)
        if mischief is Mischief.LOSE_REQUEST:
            return None
        answer = self.send(request)
        if mischief is Mischief.SEND_TWICE:
            return self.send(request)
        if mischief is Mischief.FAIL_AFTER:
            return ProxyAnswer(502, {}, b"bad gateway")
        return None if mischief is Mischief.LOSE_ANSWER else answer

    def _take(self, request: ProxyRequest) -> Mischief | None:
        """What to do with a request: only commits to tables are meddled with."""
        if request.method != "POST" or "/tables/" not in request.path or request.path.endswith("/metrics"):
            return None
        with self._lock:
            self.commits += 1
            return self._armed.pop(0) if self._armed else None


@contextmanager
def catalog_proxy(target: str) -> Iterator[CatalogProxy]:
    proxy = CatalogProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
