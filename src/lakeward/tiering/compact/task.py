# SPDX-License-Identifier: Apache-2.0
"""Rewriting groups, in an executor's Python process. Outcomes are returned, never raised."""

from __future__ import annotations

import time
from dataclasses import replace

from lakeward.errors import LakewardError, SplitFailed
from lakeward.model import Clock, fault_point
from lakeward.spi import PluginCache, RewriteGroup, RewriteTask, SupportsRewrite
from lakeward.tiering.compact.order import RewriteOrder, RewriteOutcome
from lakeward.tiering.work.stop import TaskStop


def rewrite_groups(order: RewriteOrder, plugins: PluginCache, clock: Clock, attempt: int) -> list[RewriteOutcome]:
    """One after another. Never raises."""
    signal = TaskStop(order, clock, lambda: plugins.hot(order.hot).coordinator().check_lease(order.lease))
    outcomes = []
    for group in order.groups:
        began, busy = clock.monotonic(), time.thread_time()
        try:
            outcome = _rewrite(order, group, plugins, attempt, signal)
        except LakewardError as error:
            outcome = RewriteOutcome(index=group.index, error=error)
        except Exception as error:  # noqa: BLE001 - whatever a library raises must reach the driver typed
            what, text = f"group {group.index} of bucket {group.bucket}", str(error)[:2000]
            failed = SplitFailed(table=str(order.table.path), split=what, kind=type(error).__name__, text=text)
            outcome = RewriteOutcome(index=group.index, error=failed)
        outcomes.append(replace(outcome, seconds=clock.monotonic() - began, cpu_s=time.thread_time() - busy))
    return outcomes


def _rewrite(
    order: RewriteOrder, group: RewriteGroup, plugins: PluginCache, attempt: int, signal: TaskStop
) -> RewriteOutcome:
    def is_due() -> bool:
        signal.check()
        return signal.is_due()

    fault_point("group.before-rewrite", table=str(order.table.path), group=group.index)
    if is_due():
        return RewriteOutcome(index=group.index)
    task = RewriteTask(round_id=order.round_id, table=order.table, group=group, attempt=attempt, handle=order.handle)
    lake = plugins.lake(order.lake)
    assert isinstance(lake, SupportsRewrite), f"{lake.name} does not rewrite files"
    result = lake.rewrite(task, is_due)
    if result is None:
        return RewriteOutcome(index=group.index)
    return RewriteOutcome(
        index=group.index,
        payload=result.payload,
        rows=result.rows,
        bytes_read=result.bytes_read,
        bytes_written=result.bytes_written,
    )
