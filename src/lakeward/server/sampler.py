# SPDX-License-Identifier: Apache-2.0
"""Takes a sample of the figures every ten seconds for the dashboard's history."""

from __future__ import annotations

import logging
import threading

from lakeward.errors import LakewardError
from lakeward.server.history import SAMPLE_S, History
from lakeward.server.services import Services

log = logging.getLogger(__name__)


class Sampler:
    """One daemon thread. A sample that fails is left out and logged."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(SAMPLE_S)

    def _run(self) -> None:
        while True:
            try:
                take_sample(self._services, self._services.history)
            except LakewardError as error:
                log.warning("no sample: %s", error)
            if self._done.wait(SAMPLE_S):
                return


def take_sample(services: Services, history: History) -> None:
    status = services.coordinator.status()
    history.take(
        services.clock.now_ms(),
        status.tables,
        queue=int(status.figures.get("pendingTablesCount", 0)),
        remote_bytes=sum(s.remote_bytes for s in services.store.sizes()),
        files=sum((t.lake_files or 0) + (t.lake_delete_files or 0) for t in status.tables),
    )
