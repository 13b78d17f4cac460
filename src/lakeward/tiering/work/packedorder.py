# SPDX-License-Identifier: Apache-2.0
"""Functions that Spark maps: an order of any kind of work becomes its outcomes, in an executor's Python process."""

from __future__ import annotations

from lakeward.model import SystemClock, WorkKind
from lakeward.spi import PROCESS_PLUGINS
from lakeward.tiering.work.heap import keep_freed_memory, keep_loaded
from lakeward.tiering.work.kinds import load_runner

PackedOrder = tuple[WorkKind, bytes]


def run_order(order: PackedOrder) -> list[bytes]:
    keep_freed_memory()
    kind, data = order
    outcomes = load_runner(kind).run_order(data, PROCESS_PLUGINS, SystemClock(), _task_attempt())
    keep_loaded()  # after an order: now every module that one needs is there
    return outcomes


def _task_attempt() -> int:
    """Spark's own number of this attempt, unique in the application: two attempts never write the same file."""
    try:
        from pyspark import TaskContext
    except ModuleNotFoundError:
        return 0
    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())
