# SPDX-License-Identifier: Apache-2.0
"""Warming up: a job asks for tables once driver, JVM and Python workers are ready to run a round at full speed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from lakeward.tiering.work.preload import import_for_rounds

log = logging.getLogger("lakeward.tiering")

WORKERS_LIMIT_S = 30.0
"""A cluster may give executors late; the job then begins without having met them."""

STAY_S = 0.1
"""A task holds its worker for so long, so that its neighbours come to others."""


class WarmUp:
    """The driver's imports, in a thread beside the JVM's start."""

    def __init__(self, hot: str) -> None:
        self._hot = hot
        self._thread = threading.Thread(target=lambda: import_for_rounds([hot]), name="lakeward-warm-up", daemon=True)

    def start(self) -> WarmUp:
        self._thread.start()
        return self

    def finish(
        self, context: Any, start_thread: Callable[[Callable[[], None], str], None], limit_s: float = WORKERS_LIMIT_S
    ) -> None:
        """Runs one job that a task of each core takes part in. Trouble with it is the rounds'
        to report, each its own.
        """
        done = threading.Event()

        def run() -> None:
            try:
                cores = max(1, int(context.defaultParallelism))
                context.parallelize([self._hot] * cores, cores).map(_touch).collect()
            except Exception as error:  # noqa: BLE001 - py4j raises what it likes; rounds meet it again and say it typed
                log.warning("warming up: %s", str(error).splitlines()[0] if str(error) else type(error).__name__)
            finally:
                done.set()

        start_thread(run, "lakeward-warm-up-workers")
        self._thread.join()
        if not done.wait(limit_s):
            log.warning("warming up: no executor answered within %.0f s; rounds wait for them", limit_s)


def _touch(hot: str) -> None:
    """In a Python worker: what an order needs is imported, here or in the process that this one was forked from."""
    import_for_rounds([hot])
    time.sleep(STAY_S)
