# SPDX-License-Identifier: Apache-2.0
"""Shows the plan of a round that would begin now, without taking, leasing or changing anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakeward.model import (
    NO_EPOCH,
    Clock,
    InstanceId,
    JobName,
    LogSplit,
    RoundId,
    RoundOwner,
    RoundPlan,
    SideName,
    SystemClock,
    TableInfo,
    TablePath,
    describe_plan,
)
from lakeward.protocol.heartbeat import HandedOut
from lakeward.spi import HotPlugin, LakeStorage, Plugin, PluginCache
from lakeward.tiering.round.plan import DEFAULT_TARGET_BYTES
from lakeward.tiering.round.planning import Ground, Planner
from lakeward.tiering.round.reconcile import Agreement

NO_ROUND = RoundId("explain")


def explain_round(hot: HotPlugin, path: TablePath, side: SideName | None = None) -> list[dict[str, Any]]:
    """One plain row per split of the next round: bucket, split, start, stop."""
    return describe_plan(explain(hot, path, side).plan)


@dataclass(frozen=True, kw_only=True)
class Explanation:
    ground: Ground

    @property
    def plan(self) -> RoundPlan:
        return self.ground.plan

    def lines(self) -> list[str]:
        """For people."""
        plan = self.plan
        lines = [
            f"table {plan.table.path}, schema {plan.table.schema.schema_id}; the lake's newest round is "
            f"{plan.base.token or 'none'}"
        ]
        if self.ground.agreement is Agreement.LAKE_AHEAD:
            lines.append("the lake is ahead of the coordinator: its offsets are adopted first")
        if self.ground.is_resync:
            lines.append("a resync: the lake is taken as it is, what it lacks comes from the log as far as that goes")
        lines += [
            f"gap {bucket} {gap}: these rows were gone before the lake had them"
            for bucket, gap in self.ground.gaps.items()
        ]
        if plan.is_empty:
            return [*lines, "no new offsets: nothing runs, nothing is committed"]
        lines += [f"  {row['split']}" for row in describe_plan(plan)]
        rows = sum(len(s.range) for s in plan.splits if isinstance(s, LogSplit))
        splits = "1 split" if len(plan.splits) == 1 else f"{len(plan.splits):,} splits"
        return [*lines, f"{splits}, {rows:,} log records, about {self.ground.bytes_waiting:,} bytes"]


def explain(
    hot: HotPlugin,
    path: TablePath,
    side: SideName | None = None,
    *,
    plugins: PluginCache | None = None,
    target_bytes: int = DEFAULT_TARGET_BYTES,
    clock: Clock | None = None,
) -> Explanation:
    """The round's own planner, run dry: it reads the lake, the coordinator and the log. KV snapshots are shown as they
    would be taken, at the log's end.

    Raises what planning raises: the same error would fail the round."""
    committed, caches = hot.coordinator().committed(path, side), plugins or PluginCache()

    def lake_of(table: TableInfo) -> LakeStorage:
        name, lake_options = hot.lake_options(table, committed.side)
        return caches.lake(Plugin(name=name, options=dict(lake_options)))

    handed = HandedOut(
        table_id=committed.table_id,
        path=path,
        epoch=NO_EPOCH,
        freshness_ms=0,
        resync=committed.resync,
        to_compare=committed.to_compare,
        generation=committed.generation + committed.resync,
        side=committed.side,
        committed=committed,
    )
    planner = Planner(
        world_hot=hot,
        handed=handed,
        owner=RoundOwner(job=JobName(NO_ROUND), instance=InstanceId(NO_ROUND), epoch=NO_EPOCH),
        round_id=NO_ROUND,
        clock=clock or SystemClock(),
        is_dry=True,
    )
    return Explanation(ground=planner.prepare(lake_of, target_bytes))
