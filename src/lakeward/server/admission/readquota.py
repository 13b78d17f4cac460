# SPDX-License-Identifier: Apache-2.0
"""How many union reads a token has under way: each holds a lake snapshot and log that would go."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lakeward.errors import QuotaExceeded
from lakeward.model import LeaseId
from lakeward.protocol.auth import Token


class ReadQuotas:
    """Leases by token, as long as they last. Thread-safe."""

    def __init__(self, per_token: int, now_ms: Callable[[], int]) -> None:
        self._limit, self._now_ms, self._lock = per_token, now_ms, threading.Lock()
        self._held: dict[str, dict[LeaseId, int]] = {}

    def check(self, token_name: str) -> None:
        """Before another one. Raises `QuotaExceeded`."""
        with self._lock:
            now_ms = self._now_ms()
            held = {i: until for i, until in self._held.pop(token_name, {}).items() if until > now_ms}
            if held:
                self._held[token_name] = held
            if len(held) >= self._limit:
                raise QuotaExceeded(token_name=token_name, what="reads under way", used=len(held), limit=self._limit)

    def note(self, token_name: str, lease_id: LeaseId, ends_at_ms: int) -> None:
        with self._lock:
            self._held.setdefault(token_name, {})[lease_id] = ends_at_ms

    def renew(self, token_name: str, lease_id: LeaseId, lease_s: float) -> None:
        with self._lock:
            held = self._held.get(token_name, {})
            if lease_id in held:
                held[lease_id] = max(held[lease_id], self._now_ms() + int(1_000 * lease_s))

    def check_owner(self, token: Token, lease_id: LeaseId) -> None:
        """A lease belongs to the token that took it; who took one before a restart is not known. Raises `Forbidden`."""
        with self._lock:
            owners = {name for name, held in self._held.items() if lease_id in held}
        if owners and token.name not in owners:
            raise token.refuse(f"read lease {lease_id}", "the token that took it")

    def release(self, lease_id: LeaseId) -> None:
        with self._lock:
            for held in self._held.values():
                held.pop(lease_id, None)
