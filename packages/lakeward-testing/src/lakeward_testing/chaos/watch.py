# SPDX-License-Identifier: Apache-2.0
"""Watches the server from outside while it is hurt: committed offsets and epochs never go back, no log starts above its
lake.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from lakeward.protocol import routes

EVERY_S = 0.5
PATIENCE_S = 2.0


@dataclass
class Watched:
    """`wrong`: what broke. `commits`: when the sum of committed offsets moved; `longest_s`: the longest time it did
    not.
    """

    samples: int = 0
    wrong: list[str] = field(default_factory=list)
    commits: int = 0
    longest_s: float = 0.0
    peak_bytes: int = 0
    """The most memory that the server held since `take_peak`."""


class Watch:
    def __init__(self, url: str, tables: tuple[str, ...], memory: Callable[[], int] = lambda: 0) -> None:
        self.result, self._memory = Watched(), memory
        self._tables = tables
        self._client = httpx.Client(base_url=url, timeout=PATIENCE_S)
        self._offsets: dict[str, dict[str, int]] = {}
        self._epochs: dict[str, int] = {}
        self._moved_at = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-watch", daemon=True)
        self._thread.start()

    def stop(self) -> Watched:
        self._done.set()
        self._thread.join(PATIENCE_S * 10)
        self._client.close()
        return self.result

    def take_peak(self) -> int:
        """The most until now; counted anew from here on."""
        peak, self.result.peak_bytes = self.result.peak_bytes, 0
        return peak

    def _run(self) -> None:
        while not self._done.wait(EVERY_S):
            self.result.peak_bytes = max(self.result.peak_bytes, self._memory())
            for table in self._tables:
                try:
                    self._look(table)
                except (httpx.HTTPError, ValueError):
                    continue  # the server is being hurt

    def _look(self, table: str) -> None:
        committed = self._get(routes.COMMITTED.format(table=table))
        status = self._get(routes.TABLE_STATUS.format(table=table))
        if committed is None or status is None:
            return
        self.result.samples += 1
        offsets = {f"{p}/{n}": o for p, pairs in committed["offsets"]["offsets"].items() for n, o in pairs}
        self._compare(table, offsets, int(status["epoch"]))

    def _compare(self, table: str, offsets: dict[str, int], epoch: int) -> None:
        before = self._offsets.get(table, {})
        back = {b: (o, offsets.get(b)) for b, o in before.items() if offsets.get(b, -1) < o}
        if back:
            self.result.wrong.append(f"{table}: committed offsets went back: {back}")
        if epoch < self._epochs.get(table, 0):
            self.result.wrong.append(f"{table}: the epoch went back from {self._epochs[table]} to {epoch}")
        if sum(offsets.values()) > sum(before.values()):
            now = time.monotonic()
            self.result.commits += 1
            self.result.longest_s = max(self.result.longest_s, now - self._moved_at)
            self._moved_at = now
        self._offsets[table], self._epochs[table] = offsets, epoch

    def _get(self, path: str) -> dict[str, Any] | None:
        answer = self._client.get(path)
        body: dict[str, Any] | None = answer.json() if answer.status_code == 200 else None
        return body
