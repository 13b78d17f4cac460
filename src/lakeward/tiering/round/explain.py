# SPDX-License-Identifier: Apache-2.0
"""What a round of a table would do if it began now: the plan, without taking, leasing or telling anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakeward.model.bucket import Bucket
from lakeward.model.clock import Clock, SystemClock
from lakeward.model.ids import RoundId
from lakeward.model.offsets import OffsetRange
from lakeward.model.round import RoundPlan, describe_plan
from lakeward.model.split import LogSplit
from lakeward.model.table import TablePath
from lakeward.spi.hot import HotPlugin, KvSnapshot
from lakeward.tiering.plugins import PluginCache
from lakeward.tiering.round.order import Plugin
from lakeward.tiering.round.plan import (
    DEFAULT_TARGET_BYTES,
    PlanOptions,
    plan_bytes,
    plan_gaps,
    plan_round,
    plan_snapshots,
)
from lakeward.tiering.round.reconcile import Agreement, compare

NO_ROUND = RoundId("explain")


def explain_round(hot: HotPlugin, path: TablePath) -> list[dict[str, Any]]:
    """One plain row per split of the next round: bucket, split, start, stop."""
    return describe_plan(explain(hot, path).plan)


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """`agreement`: whether the round would first adopt a lake that is ahead."""

    plan: RoundPlan
    agreement: Agreement
    bytes_waiting: int
    gaps: dict[Bucket, OffsetRange]

    def lines(self) -> list[str]:
        """For people."""
        plan = self.plan
        found = [
            f"table {plan.table.path}, schema {plan.table.schema.schema_id}; the lake's newest round is "
            f"{plan.base.token or 'none'}"
        ]
        if self.agreement is Agreement.LAKE_AHEAD:
            found.append("the lake is ahead of the coordinator: its offsets are adopted first")
        found += [
            f"gap {bucket} {gap}: these rows were gone before the lake had them" for bucket, gap in self.gaps.items()
        ]
        if plan.is_empty:
            return [*found, "no new offsets: nothing runs, nothing is committed"]
        found += [f"  {row['split']}" for row in describe_plan(plan)]
        rows = sum(len(s.range) for s in plan.splits if isinstance(s, LogSplit))
        return [*found, f"{len(plan.splits)} splits, {rows} log records, about {self.bytes_waiting:,} bytes"]


def explain(
    hot: HotPlugin,
    path: TablePath,
    *,
    plugins: PluginCache | None = None,
    target_bytes: int = DEFAULT_TARGET_BYTES,
    clock: Clock | None = None,
) -> Explanation:
    """Reads the lake, the coordinator and the log bounds. KV snapshots are shown as they would be taken, at the log's
    end.

    Raises what planning raises: the same error would fail the round."""
    store = hot.store()
    table = store.load_table(path)
    name, lake_options = hot.lake_options(table)
    lake = (plugins or PluginCache()).lake(Plugin(name=name, options=dict(lake_options)))
    committed = hot.coordinator().committed(path)
    base = lake.open_reader(table).load_base()
    agreement = compare(table, base, committed)
    options = PlanOptions(target_bytes=target_bytes, one_writer_per_bucket=lake.capabilities.one_writer_per_bucket)
    bounds = store.freeze(table)
    needed = plan_snapshots(table, base, bounds, options)
    snapshots = {b: KvSnapshot(bucket=b, snapshot_id="to be taken", log_offset=bounds[b].end) for b in needed}
    plan = plan_round(
        round_id=NO_ROUND,
        table=table,
        base=base,
        bounds=bounds,
        snapshots=snapshots,
        options=options,
        planned_at_ms=(clock or SystemClock()).now_ms(),
    )
    return Explanation(
        plan=plan, agreement=agreement, bytes_waiting=plan_bytes(plan, bounds, snapshots), gaps=plan_gaps(plan, bounds)
    )
