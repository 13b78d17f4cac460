# SPDX-License-Identifier: Apache-2.0
"""Base of a compaction: the lake in the state that was read, and the plan for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakeward.model import NO_EPOCH, Bucket, Clock, LakeBase, OffsetRange, TableInfo
from lakeward.model.side import COMPACT
from lakeward.protocol.views import WorkStatus
from lakeward.spi import LakeFile, LakeStorage, RewriteGroup, SupportsRewrite, SupportsVectors
from lakeward.tiering.compact.plan import (
    CompactionPlan,
    Why,
    join_plans,
    may_be_worn,
    plan_compaction,
    plan_drop,
    plan_unplaced,
)
from lakeward.tiering.compact.retention import dropped_ranges, load_retention
from lakeward.tiering.work.options import TieringOptions


@dataclass(frozen=True, kw_only=True)
class CompactionGround:
    """`groups` are those of the plan that one compaction rewrites."""

    table: TableInfo
    base: LakeBase
    plan: CompactionPlan
    groups: tuple[RewriteGroup, ...]
    files: tuple[LakeFile, ...] = ()
    committed_at_ms: Mapping[int, int] = field(default_factory=dict)
    """Commit times of the lake's snapshots, by their number."""

    dropped: Mapping[Bucket, OffsetRange] = field(default_factory=dict)
    """Offsets that a changelog's retention removes; nothing else is rewritten in the same commit."""


def load_compaction(table: TableInfo, lake: LakeStorage, options: TieringOptions, clock: Clock) -> CompactionGround:
    """Reads the head's files. Raises what `LakeReader.load_base` raises.

    The rows of a clean table do not say their offsets. Its log files are counted in the order of their commits, where
    others do not say theirs: a merged one stays in the place of its inputs. Those of its PK tables may come in any
    order."""
    reader = lake.open_reader(table).pinned()
    base = reader.load_base()
    snapshot = None if base.head is None else reader.load_snapshot(base.head)
    if base.token is None or snapshot is None:
        return CompactionGround(table=table, base=base, plan=CompactionPlan(), groups=())
    is_clean = not reader.has_offsets
    quiet_at_ms = clock.now_ms() - int(1_000 * options.quiet_after_s)
    committed_at_ms = {s.sequence: s.committed_at_ms for s in reader.snapshots()}
    policy = replace(
        options.compaction,
        quiet_sequence=_quiet_sequence(committed_at_ms, quiet_at_ms),
        by_commit=is_clean and table.is_pk,
    )
    files = tuple(reader.files(snapshot.snapshot_id))
    deleted = dict[str, int]()
    if isinstance(reader, SupportsVectors):
        deleted = {f.path: len(reader.deleted_rows(f)) for f in files if may_be_worn(f, policy)}
    is_counted = is_clean and not table.is_pk
    is_aged = is_counted and reader.counts_by_commit
    retention = load_retention(table, reader, snapshot.snapshot_id, files, clock.now_ms())
    over = {} if retention is None else retention.over(files)
    unplaced = [f for f in files if f.bucket is None] if reader.rewrites_unplaced else []
    counted_files = [f for f in files if f.offsets is not None or not is_counted or (not unplaced and f.bucket is None)]
    parts = [counted_files] if retention is None else retention.windows(counted_files)
    plans = [*(plan_compaction(p, policy, deleted) for p in parts), plan_unplaced(unplaced, policy, deleted)]
    plan = plan_drop(over, len(files)) if over else join_plans(plans)
    groups = tuple(
        RewriteGroup(
            bucket=g.bucket,
            files=tuple(f.file for f in g.files),
            sequence=max(f.file.sequence for f in g.files) if is_aged else snapshot.sequence,
            index=index,
            is_dropped=g.why is Why.DROP,
            is_unplaced=g.is_unplaced,
        )
        for index, g in enumerate(plan.groups if over else plan.within(options.compaction_bytes))
    )
    return CompactionGround(
        table=table,
        base=base,
        plan=plan,
        groups=groups,
        files=files,
        committed_at_ms=committed_at_ms,
        dropped=dropped_ranges(over, files, base.offsets),
    )


def load_debt(table: TableInfo, lake: LakeStorage, clock: Clock) -> WorkStatus | None:
    """Compaction debt under the default policy, shown where no Lakeward coordinator keeps it; None: the lake's files
    cannot be rewritten. Raises as `load_compaction`."""
    if not isinstance(lake, SupportsRewrite):
        return None
    plan = load_compaction(table, lake, TieringOptions(server=""), clock).plan
    return WorkStatus(kind=COMPACT, epoch=NO_EPOCH, debt_files=plan.saved_files)


def _quiet_sequence(committed_at_ms: Mapping[int, int], quiet_at_ms: int) -> int:
    """Sequence number of the newest snapshot from before then. The commit times of expired snapshots are unknown: their
    files count once the oldest retained snapshot does."""
    return max((number for number, at_ms in committed_at_ms.items() if at_ms <= quiet_at_ms), default=-1)
