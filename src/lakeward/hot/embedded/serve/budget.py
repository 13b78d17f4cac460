# SPDX-License-Identifier: Apache-2.0
"""Memory that requests may hold at once. A put that does not fit waits unread: the producer feels it as
back-pressure.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.errors import InvalidRequest, Overloaded

MIB = 1024 * 1024


class MemoryBudget:
    """`request_bytes` bounds one batch, `total_bytes` all batches in work; a wait ends after `patience_s` with
    `Overloaded`.
    """

    def __init__(
        self, *, total_bytes: int = 512 * MIB, request_bytes: int = 64 * MIB, patience_s: float = 30.0
    ) -> None:
        self.total_bytes, self.request_bytes, self.patience_s = total_bytes, min(request_bytes, total_bytes), patience_s
        self._in_use = 0
        self._freed = threading.Condition()

    @property
    def in_use_bytes(self) -> int:
        return self._in_use

    @contextmanager
    def hold(self, size: int, what: str) -> Iterator[None]:
        """Raises `InvalidRequest` for a batch over the limit, `Overloaded` when no room came free in time."""
        if size > self.request_bytes:
            raise InvalidRequest(
                what=what,
                reason=f"the batch has {size} bytes, at most {self.request_bytes} are taken; send smaller ones",
            )
        with self._freed:
            if not self._freed.wait_for(lambda: self._in_use + size <= self.total_bytes, self.patience_s):
                raise Overloaded(what=what, in_use_bytes=self._in_use, limit_bytes=self.total_bytes)
            self._in_use += size
        try:
            yield
        finally:
            with self._freed:
                self._in_use -= size
                self._freed.notify_all()
