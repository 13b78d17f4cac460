# SPDX-License-Identifier: Apache-2.0
"""Orphan removal by the job itself, where no Lakeward server does it: after a table's commits, now and then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.errors import LakewardError
from lakeward.lake.orphans import OrphanOptions, OrphanRemoval
from lakeward.model import Clock, TablePath
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward.spi import HotPlugin, Plugin, PluginCache, SupportsIntents

log = logging.getLogger("lakeward.tiering")

INTERVAL_S = 600.0
"""A pass lists two folders for each open intent: at one round a second that is a few hundred listings in ten minutes.
"""


class OrphanDuty:
    """Called by round threads once a round is over and told. A pass fences nothing: the commit that came before it has
    moved the token, so that every older intent's writer is refused already."""

    def __init__(
        self, hot: HotPlugin, plugins: PluginCache, clock: Clock, options: OrphanOptions, interval_s: float = INTERVAL_S
    ) -> None:
        self._hot, self._plugins, self._clock = hot, plugins, clock
        self._options, self._interval_s = options, interval_s
        self._last: dict[TablePath, float] = {}
        self._lock = threading.Lock()

    def after_round(self, path: TablePath, end: TableFinished | TableFailed) -> None:
        """Never raises: what stays is the next pass's."""
        if self._hot.is_upkept or not isinstance(end, TableFinished) or end.result is None or not self._is_due(path):
            return
        try:
            self._remove(path)
        except LakewardError as error:
            log.warning("%s: orphans were not removed: %s", path, error)

    def _is_due(self, path: TablePath) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            if now - self._last.get(path, -self._interval_s) < self._interval_s:
                return False
            self._last[path] = now
            return True

    def _remove(self, path: TablePath) -> None:
        table = self._hot.store().load_table(path)
        name, lake_options = self._hot.lake_options(table)
        lake = self._plugins.lake(Plugin(name=name, options=dict(lake_options)))
        removal = OrphanRemoval(
            lake, table, clock=self._clock, options=self._options, hold=_never, adopt=lambda _base: None
        )
        assert isinstance(lake, SupportsIntents), f"{lake.name} keeps no intents"
        report = removal.by_intents(lake.open_intents(table))
        if report.files:
            log.info("%s: removed %d orphans, %d bytes", path, report.files, report.bytes)


@contextmanager
def _never() -> Iterator[bool]:
    """This job cannot keep a table unleased: Fluss hands it out."""
    yield False
