# SPDX-License-Identifier: Apache-2.0
"""Memory that requests may hold at once. A put that does not fit waits unread: the producer feels it as
back-pressure.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from lakeward.errors import InvalidRequest, Overloaded, QuotaExceeded

MIB = 1024 * 1024


class MemoryBudget:
    """`request_bytes` bounds one batch, `token_bytes` the batches of one token, `total_bytes` all batches in work; a
    wait ends after `patience_s` with `QuotaExceeded` or `Overloaded`.
    """

    def __init__(
        self,
        *,
        total_bytes: int = 512 * MIB,
        request_bytes: int = 64 * MIB,
        token_bytes: int | None = None,
        patience_s: float = 30.0,
    ) -> None:
        self.total_bytes, self.patience_s = total_bytes, patience_s
        self.token_bytes = total_bytes if token_bytes is None else min(token_bytes, total_bytes)
        self.request_bytes = min(request_bytes, self.token_bytes)
        self._in_use, self._by_token, self._waiting = 0, Counter[str](), 0
        self._freed = threading.Condition()

    @property
    def in_use_bytes(self) -> int:
        return self._in_use

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return self._waiting

    def of_answers(self) -> MemoryBudget:
        """Another one, as large: readers who take nothing do not keep writers waiting."""
        return MemoryBudget(
            total_bytes=self.total_bytes,
            request_bytes=self.token_bytes,
            token_bytes=self.token_bytes,
            patience_s=self.patience_s,
        )

    def of(self, token_name: str) -> TokenBudget:
        return TokenBudget(self, token_name)

    @contextmanager
    def hold(self, size: int, what: str, token_name: str = "") -> Iterator[Held]:
        """Raises `InvalidRequest` for a batch over the limit; when no room came free in time `Overloaded`, or
        `QuotaExceeded` where only the token's own share is used up."""
        if size > self.request_bytes:
            raise InvalidRequest(
                what=what,
                reason=f"the batch has {size} bytes, at most {self.request_bytes} are taken; send smaller ones",
            )
        with self._freed:
            if not self._wait_for_room(size, token_name):
                if self._in_use + size > self.total_bytes:
                    raise Overloaded(what=what, in_use_bytes=self._in_use, limit_bytes=self.total_bytes)
                used, limit = self._by_token[token_name], self.token_bytes
                raise QuotaExceeded(token_name=token_name, what="bytes under way", used=used, limit=limit)
            self._in_use += size
            self._by_token[token_name] += size
        held = Held(self, token_name, size)
        try:
            yield held
        finally:
            held.shrink_to(0)

    def release(self, size: int, token_name: str) -> None:
        with self._freed:
            self._in_use -= size
            self._by_token[token_name] -= size
            if not self._by_token[token_name]:
                del self._by_token[token_name]
            self._freed.notify_all()

    def _wait_for_room(self, size: int, token_name: str) -> bool:
        self._waiting += 1
        try:
            return self._freed.wait_for(lambda: self._has_room(size, token_name), self.patience_s)
        finally:
            self._waiting -= 1

    def _has_room(self, size: int, token_name: str) -> bool:
        fits_token = self._by_token[token_name] + size <= self.token_bytes
        return fits_token and self._in_use + size <= self.total_bytes


class Held:
    """The share of a budget that one request uses."""

    def __init__(self, budget: MemoryBudget, token_name: str, size: int) -> None:
        self._budget, self._token_name, self._size = budget, token_name, size

    def shrink_to(self, size: int) -> None:
        """Gives back what is above that."""
        if size < self._size:
            self._budget.release(self._size - size, self._token_name)
            self._size = size


@dataclass(frozen=True)
class TokenBudget:
    """The share of the budget that one token may use."""

    budget: MemoryBudget
    token_name: str

    def hold(self, size: int, what: str) -> AbstractContextManager[Held]:
        return self.budget.hold(size, what, self.token_name)

    def hold_most(self, size: int, what: str) -> AbstractContextManager[Held]:
        """`size`, or as much as is ever given at once."""
        return self.hold(min(size, self.budget.request_bytes), what)
