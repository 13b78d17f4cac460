# SPDX-License-Identifier: Apache-2.0
"""Limits of one token over Flight: simultaneous calls, each of which is a thread of the server, KV snapshots, and new
writers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakeward.errors import QuotaExceeded, ServerUnavailable
from lakeward.hot.embedded.kv.snapshot import DEFAULT_LEASE_S
from lakeward.hot.embedded.log.writers import BUSY_WRITER_MS
from lakeward.model import Bucket, TablePath

CALLS, ALL_CALLS = 400, 1000
"""A busy writer has one stream a table, a reader one a bucket; a thread costs some 100 kB."""


class StreamQuotas:
    """Thread-safe."""

    def __init__(self, per_token: int = CALLS, in_all: int = ALL_CALLS) -> None:
        self._limit, self.in_all, self._lock = per_token, in_all, threading.Lock()
        self._under_way: Counter[str] = Counter()

    def enter(self, token_name: str) -> None:
        """Raises `QuotaExceeded`, and `ServerUnavailable` where the calls of all tokens are too many."""
        with self._lock:
            if self._under_way.total() >= self.in_all:
                reason = f"{self.in_all} Flight calls are under way, the most that it takes"
                raise ServerUnavailable(address="this server", reason=reason)
            used = self._under_way[token_name]
            if used >= self._limit:
                raise QuotaExceeded(token_name=token_name, what="Flight calls", used=used, limit=self._limit)
            self._under_way[token_name] += 1

    def leave(self, token_name: str) -> None:
        with self._lock:
            self._under_way[token_name] -= 1
            if not self._under_way[token_name]:
                del self._under_way[token_name]


WRITERS = 500_000
"""First puts of a writer to a bucket in ten minutes: 200 tasks that write to 64 buckets every 20 s begin 384,000."""


class WriterQuotas:
    """How many writers of buckets a token began in the span that runs. Thread-safe."""

    def __init__(
        self,
        per_token: int = WRITERS,
        span_s: float = BUSY_WRITER_MS / 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit, self._span_s, self._clock, self._lock = per_token, span_s, clock, threading.Lock()
        self._begun: Counter[str] = Counter()
        self._until = clock() + span_s

    def begin(self, token_name: str) -> None:
        """Raises `QuotaExceeded`."""
        with self._lock:
            if self._clock() >= self._until:
                self._begun, self._until = Counter(), self._clock() + self._span_s
            used = self._begun[token_name]
            if used >= self._limit:
                what = f"new writers of buckets in {self._span_s:g} s"
                raise QuotaExceeded(token_name=token_name, what=what, used=used, limit=self._limit)
            self._begun[token_name] += 1


SNAPSHOTS = 24
"""KV snapshots of one bucket that a token may hold: each keeps files and log that would go. A round holds one."""


class SnapshotQuotas:
    """Who holds snapshots of which bucket, as long as a lease on one lasts. Thread-safe."""

    def __init__(self, per_bucket: int = SNAPSHOTS, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock, self._lock = per_bucket, clock, threading.Lock()
        self._held: dict[tuple[str, TablePath], dict[tuple[Bucket, str], float]] = {}

    @property
    def held(self) -> int:
        with self._lock:
            return sum(map(len, self._held.values()))

    @contextmanager
    def taking(self, token_name: str, table: TablePath, bucket: Bucket, holder: str) -> Iterator[None]:
        """Around the taking; one that fails is not counted. Raises `QuotaExceeded`."""
        self.take(token_name, table, bucket, holder)
        try:
            yield
        except BaseException:
            with self._lock:
                self._forget(token_name, table, [(bucket, holder)])
            raise

    def take(self, token_name: str, table: TablePath, bucket: Bucket, holder: str) -> None:
        """Raises `QuotaExceeded`. A holder that takes one again holds one."""
        now = self._clock()
        with self._lock:
            held = self._held.setdefault((token_name, table), {})
            for expired_key in [k for k, until in held.items() if until <= now]:
                del held[expired_key]
            used = sum(1 for b, h in held if b == bucket and h != holder)
            if used >= self._limit:
                what = f"KV snapshots of bucket {bucket}"
                raise QuotaExceeded(token_name=token_name, what=what, used=used, limit=self._limit)
            held[bucket, holder] = now + DEFAULT_LEASE_S

    def release(self, token_name: str, table: TablePath, holder: str) -> None:
        with self._lock:
            self._forget(token_name, table, [k for k in self._held.get((token_name, table), ()) if k[1] == holder])

    def _forget(self, token_name: str, table: TablePath, gone: list[tuple[Bucket, str]]) -> None:
        held = self._held.get((token_name, table), {})
        for key in gone:
            held.pop(key, None)
        if not held:
            self._held.pop((token_name, table), None)
