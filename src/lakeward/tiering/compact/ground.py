# SPDX-License-Identifier: Apache-2.0
"""What a compaction stands on: the lake as it is read, and the plan for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakeward.model.clock import Clock
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.spi.lake import LakeReader, LakeStorage, RewriteGroup
from lakeward.tiering.compact.plan import CompactionPlan, plan_compaction
from lakeward.tiering.job.options import TieringOptions


@dataclass(frozen=True, kw_only=True)
class CompactionGround:
    """`groups` are those of the plan that one compaction rewrites."""

    table: TableInfo
    base: LakeBase
    plan: CompactionPlan
    groups: tuple[RewriteGroup, ...]


def load_compaction(table: TableInfo, lake: LakeStorage, options: TieringOptions, clock: Clock) -> CompactionGround:
    """Reads the head's files. Raises what `LakeReader.load_base` raises."""
    reader = lake.open_reader(table)
    base = reader.load_base()
    snapshot = None if base.head is None else reader.load_snapshot(base.head)
    if base.token is None or snapshot is None:
        return CompactionGround(table=table, base=base, plan=CompactionPlan(), groups=())
    quiet_at_ms = clock.now_ms() - int(1_000 * options.quiet_after_s)
    policy = replace(options.compaction, quiet_sequence=_quiet_sequence(reader, quiet_at_ms))
    plan = plan_compaction(reader.files(snapshot.snapshot_id), policy)
    groups = tuple(
        RewriteGroup(bucket=g.bucket, files=tuple(f.file for f in g.files), sequence=snapshot.sequence, index=index)
        for index, g in enumerate(plan.within(options.compaction_bytes))
    )
    return CompactionGround(table=table, base=base, plan=plan, groups=groups)


def _quiet_sequence(reader: LakeReader, quiet_at_ms: int) -> int:
    """The number of the newest snapshot from before then. When those were that have expired since nobody knows: what
    they wrote counts once the oldest one that is kept does."""
    return max((s.sequence for s in reader.snapshots() if s.committed_at_ms <= quiet_at_ms), default=-1)
