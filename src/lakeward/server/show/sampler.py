# SPDX-License-Identifier: Apache-2.0
"""Takes a sample of the figures every ten seconds for the dashboard's history."""

from __future__ import annotations

from lakeward.model import BackgroundThread
from lakeward.server.feed.history import SAMPLE_S, History
from lakeward.server.services import PageServices


class Sampler(BackgroundThread):
    """A sample that fails is left out and logged."""

    def __init__(self, services: PageServices) -> None:
        super().__init__("sampler", lambda: take_sample(services, services.history), SAMPLE_S)


def take_sample(services: PageServices, history: History) -> None:
    status = services.source.status()
    history.take(
        services.clock.now_ms(),
        status.tables,
        services.source.take_lag_drops(),
        queue=int(status.figures.get("pendingTablesCount", 0)),
        remote_bytes=sum(s.remote_bytes for s in services.source.sizes()),
        files=sum((t.lake_files or 0) + (t.lake_delete_files or 0) for t in status.tables),
        debt=sum(t.debt_files for t in status.tables),
    )
