# SPDX-License-Identifier: Apache-2.0
"""Plans a union read, purely: which lake snapshot, and which range of each bucket's hot log on top of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from lakeward.errors import InvalidRequest, SnapshotGone
from lakeward.model.bucket import Bucket
from lakeward.model.ids import SnapshotId
from lakeward.model.offsets import OffsetMap, OffsetRange
from lakeward.protocol.readplan import ReadPlan
from lakeward.spi.hot import LogBounds
from lakeward.spi.lake import LakeSnapshot


class ReadMode(StrEnum):
    UNION = "union"
    LAKE = "lake"
    HOT = "hot"

    @classmethod
    def parse(cls, text: str) -> ReadMode:
        try:
            return cls(text)
        except ValueError:
            raise InvalidRequest(what="mode", reason=f"{text!r} is not one of union, lake, hot") from None


AsOf = int | str | datetime
"""A lake snapshot id (int or text), or a moment."""


@dataclass(frozen=True, kw_only=True)
class UnionPlan:
    """`snapshot_id` None: nothing comes from the lake. `tails` hold no empty range. `lake_offsets` is L per bucket."""

    snapshot_id: SnapshotId | None
    lake_offsets: OffsetMap
    tails: Mapping[Bucket, OffsetRange] = field(default_factory=dict)

    @property
    def ends(self) -> OffsetMap:
        """Per bucket the offset this read reaches up to."""
        return self.lake_offsets.overlaid({b: r.stop for b, r in self.tails.items()})


def plan_union(plan: ReadPlan, snapshot: LakeSnapshot | None, mode: ReadMode = ReadMode.UNION) -> UnionPlan:
    """`snapshot` is the plan's, as the lake itself describes it: its offsets count, never the coordinator's.

    A bucket the snapshot does not know starts where its log does; a bucket only the lake knows has no tail."""
    if mode is ReadMode.LAKE:
        return plan_lake(snapshot)
    known = OffsetMap() if snapshot is None else snapshot.offsets or OffsetMap()
    tails = {}
    for tail in plan.tails:
        start = known.get(tail.bucket, tail.range.start)
        if start < tail.range.stop:
            tails[tail.bucket] = OffsetRange(start, tail.range.stop)
    return UnionPlan(snapshot_id=None if snapshot is None else snapshot.snapshot_id, lake_offsets=known, tails=tails)


def plan_hot(bounds: Mapping[Bucket, LogBounds]) -> UnionPlan:
    """The hot store alone: what its logs still hold."""
    tails = {b: OffsetRange(v.start, v.end) for b, v in bounds.items() if v.start < v.end}
    return UnionPlan(snapshot_id=None, lake_offsets=OffsetMap({b: r.start for b, r in tails.items()}), tails=tails)


def plan_lake(snapshot: LakeSnapshot | None) -> UnionPlan:
    """The lake alone."""
    if snapshot is None:
        return UnionPlan(snapshot_id=None, lake_offsets=OffsetMap())
    return UnionPlan(snapshot_id=snapshot.snapshot_id, lake_offsets=snapshot.offsets or OffsetMap())


def choose_snapshot(table: str, snapshots: Sequence[LakeSnapshot], as_of: AsOf) -> LakeSnapshot:
    """The retained snapshot that `as_of` names, or the newest one at or before that moment."""
    if isinstance(as_of, datetime):
        return _choose_by_time(table, snapshots, as_of)
    for snapshot in snapshots:
        if snapshot.snapshot_id == str(as_of):
            return snapshot
    raise SnapshotGone(table=table, snapshot=str(as_of), advice=_kept(snapshots))


def parse_as_of(text: str) -> AsOf:
    """A snapshot id, or an ISO date and time (UTC where it names no zone)."""
    if text.isdigit():
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(what="as_of", reason=f"{text!r} is neither a snapshot id nor an ISO date and time") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _choose_by_time(table: str, snapshots: Sequence[LakeSnapshot], moment: datetime) -> LakeSnapshot:
    moment_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    earlier = [s for s in snapshots if s.committed_at_ms <= moment_ms]
    if not earlier:
        raise SnapshotGone(table=table, snapshot=f"as of {moment.isoformat()}", advice=_kept(snapshots))
    return max(earlier, key=lambda s: s.committed_at_ms)


def _kept(snapshots: Sequence[LakeSnapshot]) -> str:
    if not snapshots:
        return "the lake has no snapshot of this table yet"
    oldest = min(s.committed_at_ms for s in snapshots)
    return f"history is kept from {datetime.fromtimestamp(oldest / 1000, UTC).isoformat()} on ({len(snapshots)} snapshots)"
