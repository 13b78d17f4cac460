# SPDX-License-Identifier: Apache-2.0
"""What a token may hold at once over Flight: calls, each of which is a thread of the server, and KV snapshots."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from lakeward.errors import QuotaExceeded
from lakeward.hot.embedded.kv.snapshot import DEFAULT_LEASE_S
from lakeward.model.bucket import Bucket
from lakeward.model.table import TablePath

CALLS = 400
"""A busy writer has one stream a table, a reader one a bucket; a thread costs some 100 kB."""


class StreamQuotas:
    """Thread-safe."""

    def __init__(self, per_token: int = CALLS) -> None:
        self._limit, self._lock = per_token, threading.Lock()
        self._under_way: Counter[str] = Counter()

    def enter(self, token_name: str) -> None:
        """Raises `QuotaExceeded`."""
        with self._lock:
            used = self._under_way[token_name]
            if used >= self._limit:
                raise QuotaExceeded(token_name=token_name, what="Flight calls", used=used, limit=self._limit)
            self._under_way[token_name] += 1

    def leave(self, token_name: str) -> None:
        with self._lock:
            self._under_way[token_name] -= 1


SNAPSHOTS = 24
"""KV snapshots of one bucket that a token may hold: each keeps files and log that would go. A round holds one."""


class SnapshotQuotas:
    """Who holds snapshots of which bucket, as long as a lease on one lasts. Thread-safe."""

    def __init__(self, per_bucket: int = SNAPSHOTS, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock, self._lock = per_bucket, clock, threading.Lock()
        self._held: dict[tuple[str, TablePath], dict[tuple[Bucket, str], float]] = {}

    def take(self, token_name: str, table: TablePath, bucket: Bucket, holder: str) -> None:
        """Raises `QuotaExceeded`. A holder that takes one again holds one."""
        now = self._clock()
        with self._lock:
            held = self._held.setdefault((token_name, table), {})
            for gone in [k for k, until in held.items() if until <= now]:
                del held[gone]
            used = sum(1 for b, h in held if b == bucket and h != holder)
            if used >= self._limit:
                what = f"KV snapshots of bucket {bucket}"
                raise QuotaExceeded(token_name=token_name, what=what, used=used, limit=self._limit)
            held[bucket, holder] = now + DEFAULT_LEASE_S

    def release(self, token_name: str, table: TablePath, holder: str) -> None:
        with self._lock:
            held = self._held.get((token_name, table), {})
            for gone in [k for k in held if k[1] == holder]:
                del held[gone]
