# SPDX-License-Identifier: Apache-2.0
"""Holds a read lease for as long as a read runs: renewed in the background, given back at the end."""

from __future__ import annotations

import threading
from types import TracebackType

from lakeward.errors import LakewardError
from lakeward.model import LeaseId
from lakeward.spi import CoordinatorClient

RENEWALS_PER_LEASE = 3
"""A lease outlives two lost renewals."""


class HeldLease:
    """Renews every third of its length on a daemon thread. `failure` keeps why it was lost, if it was.

    Without a `lease_id`: for a read that nothing has to be kept for."""

    def __init__(self, coordinator: CoordinatorClient, lease_id: LeaseId | None = None, lease_s: float = 0.0) -> None:
        self.lease_id = lease_id or LeaseId("")
        self.failure: LakewardError | None = None
        self._coordinator, self._lease_s = coordinator, lease_s
        self._done = threading.Event()
        self._more: list[HeldLease] = []
        if lease_id is None:
            self._done.set()
        else:
            threading.Thread(target=self._renew, name=f"read-lease-{lease_id}", daemon=True).start()

    def _renew(self) -> None:
        while not self._done.wait(self._lease_s / RENEWALS_PER_LEASE):
            try:
                self._coordinator.renew_read(self.lease_id, self._lease_s)
            except LakewardError as error:
                if not error.retryable:
                    self.failure = error
                    return

    def add(self, other: HeldLease) -> None:
        """Another one that the same read needs: it ends with this one."""
        self._more.append(other)

    def check(self) -> None:
        """Raises why the lease was lost; a read must not go on without it."""
        for lease in (self, *self._more):
            if lease.failure is not None:
                raise lease.failure

    def detach(self) -> None:
        """Stops renewing and lets the lease run to its end by itself: for reads that go on in other processes."""
        self._done.set()
        for lease in self._more:
            lease.detach()

    def close(self) -> None:
        """Gives the lease back; a server that does not answer lets it run out by itself. Safe to repeat."""
        for lease in self._more:
            lease.close()
        if self._done.is_set():
            return
        self._done.set()
        try:
            self._coordinator.release_read(self.lease_id)
        except LakewardError:
            return

    def __enter__(self) -> HeldLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
