# SPDX-License-Identifier: Apache-2.0
"""Proxies between the lab's processes: HTTP with answers that come late, never or wrong; and cut connections."""

from __future__ import annotations

import time
from dataclasses import replace

from lakeward.protocol.routes import ICEBERG
from lakeward_testing.chaos.journal import RunJournal
from lakeward_testing.httpproxy import HttpProxy, ProxyAnswer, ProxyRequest
from lakeward_testing.proxy import CuttingProxy

DELAY_S = 0.4
REFUSALS = {"500": (500, "InternalServerError"), "409": (409, "CommitFailedException")}
OF_CATALOG = frozenset({*REFUSALS, "time-out"})
NO_COORDINATOR = "no-coordinator"


class HurtingProxy(HttpProxy):
    """In front of the server's HTTP door, with a TCP proxy in front of its Flight door. Answers that name these doors
    are rewritten to name the proxies, so that whoever starts here stays here. What passes is noted in the journal."""

    def __init__(self, http_port: int, flight_port: int, journal: RunJournal | None = None) -> None:
        self.flight = CuttingProxy(("127.0.0.1", flight_port))
        self.hurt = 0
        self._journal = journal
        self._until: dict[str, float] = {}
        self._turn = 0
        super().__init__(f"http://127.0.0.1:{http_port}")
        self._rewrites = (
            (f"127.0.0.1:{http_port}".encode(), f"127.0.0.1:{self.port}".encode()),
            (f"127.0.0.1:{flight_port}".encode(), f"127.0.0.1:{self.flight.port}".encode()),
        )

    # ---- the lab's side --------------------------------------------------------------------------------------------
    def begin(self, mischief: str, seconds: float) -> None:
        """For that long: `delay`, `lose-answer`, `no-coordinator` (all but the catalog is away), or of the catalog
        alone `500`, `409`, `time-out`."""
        with self._lock:
            self._until[mischief] = time.monotonic() + seconds

    def heal(self) -> None:
        with self._lock:
            self._until.clear()

    def close(self) -> None:
        super().close()
        self.flight.close()

    # ---- a request's way -------------------------------------------------------------------------------------------
    def treat(self, request: ProxyRequest) -> ProxyAnswer | None:
        mischief, takes_place = self._mischief(request)
        if mischief == "delay":
            time.sleep(DELAY_S)
        if mischief in (None, "delay"):
            answer = self.send(request)
            return None if answer is None else replace(answer, body=self._rewrite(answer.body))
        if mischief == NO_COORDINATOR:
            return None
        if takes_place or mischief == "lose-answer":
            self.send(request)
        return self._refusal(mischief)

    def send(self, request: ProxyRequest) -> ProxyAnswer | None:
        answer = super().send(request)
        if self._journal is not None:
            self._journal.see(request, answer)
        return answer

    def _mischief(self, request: ProxyRequest) -> tuple[str | None, bool]:
        """(what to do to this request, whether it takes place all the same: every second one does)."""
        of_catalog = request.path.startswith(ICEBERG)
        with self._lock:
            now = time.monotonic()
            active = {name for name, until in self._until.items() if until > now}
            wanted = [*sorted(OF_CATALOG)] if of_catalog and request.method == "POST" else []
            wanted += [] if of_catalog else [NO_COORDINATOR]
            mischief = next((n for n in (*wanted, "lose-answer", "delay") if n in active), None)
            if mischief is not None:
                self.hurt += 1
                self._turn += 1
            return mischief, self._turn % 2 == 0

    def _refusal(self, mischief: str | None) -> ProxyAnswer | None:
        if mischief == "time-out":
            time.sleep(DELAY_S * 5)
        if mischief not in REFUSALS:
            return None
        code, kind = REFUSALS[mischief]
        error = f'{{"error":{{"message":"by the lab","type":"{kind}","code":{code}}}}}'
        return ProxyAnswer(code, {"content-type": "application/json"}, error.encode())

    def _rewrite(self, body: bytes) -> bytes:
        for old, new in self._rewrites:
            body = body.replace(old, new)
        return body
