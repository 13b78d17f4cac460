# SPDX-License-Identifier: Apache-2.0
"""Plans a union read, purely: which lake snapshot, and which range of each bucket's hot log on top of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from lakeward.errors import InvalidRequest, SnapshotGone
from lakeward.model import Bucket, OffsetMap, OffsetRange, SnapshotId
from lakeward.protocol.readplan import ReadPlan
from lakeward.spi import KvSnapshot, LakeSnapshot, LogBounds


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
    """`snapshot_id` None: nothing comes from the lake. `tails` hold no empty range. `lake_offsets` is L per bucket.

    `needs_kv`: PK buckets that the lake does not know and whose log no longer reaches back to their first row, with
    their ends: they are read from a KV snapshot (`kv`, once it is taken) and the log from there."""

    snapshot_id: SnapshotId | None
    lake_offsets: OffsetMap
    tails: Mapping[Bucket, OffsetRange] = field(default_factory=dict)
    needs_kv: Mapping[Bucket, int] = field(default_factory=dict)
    kv: Mapping[Bucket, KvSnapshot] = field(default_factory=dict)
    lake_at_ms: int | None = None

    @property
    def ends(self) -> OffsetMap:
        """Per bucket the offset this read reaches up to."""
        by_kv = {b: s.log_offset for b, s in self.kv.items()}
        return self.lake_offsets.overlaid({**by_kv, **{b: r.stop for b, r in self.tails.items()}})

    @property
    def tail_rows(self) -> int:
        """Offsets that come from the hot side; on PK tables some of them are changes of the same row."""
        return sum(len(r) for r in self.tails.values()) + sum(s.rows or 0 for s in self.kv.values())

    def with_kv(self, taken: Mapping[Bucket, KvSnapshot]) -> UnionPlan:
        """With the snapshots that `needs_kv` asked for. One may stand for more than the planned end, or (Fluss) for
        less.
        """
        tails = {
            b: OffsetRange(s.log_offset, self.needs_kv[b]) for b, s in taken.items() if s.log_offset < self.needs_kv[b]
        }
        return replace(self, kv=dict(taken), tails={**self.tails, **tails})

    def without(self, buckets: Iterable[Bucket]) -> UnionPlan:
        """Without the hot side of these buckets: a filter lets none of their rows through."""
        gone = set(buckets)
        tails = {b: r for b, r in self.tails.items() if b not in gone}
        return replace(self, tails=tails, needs_kv={b: e for b, e in self.needs_kv.items() if b not in gone})


def plan_union(
    plan: ReadPlan,
    snapshot: LakeSnapshot | None,
    mode: ReadMode = ReadMode.UNION,
    bounds: Mapping[Bucket, LogBounds] | None = None,
) -> UnionPlan:
    """`snapshot` is the plan's, as the lake itself describes it: its offsets count, never the coordinator's.

    A bucket the snapshot does not know starts where its log does; a bucket only the lake knows has no tail. `bounds`
    are given for PK tables: there a log that begins above 0 does not tell all rows of a bucket that the lake does not
    know."""
    if mode is ReadMode.LAKE:
        return plan_lake(snapshot)
    lake_offsets = OffsetMap() if snapshot is None else snapshot.offsets or OffsetMap()
    needs_kv = {b: v.end for b, v in (bounds or {}).items() if b not in lake_offsets and v.start > 0}
    tails = {}
    for tail in plan.tails:
        start = lake_offsets.get(tail.bucket, tail.range.start)
        if start < tail.range.stop and tail.bucket not in needs_kv:
            tails[tail.bucket] = OffsetRange(start, tail.range.stop)
    return replace(plan_lake(snapshot), tails=tails, needs_kv=needs_kv)


def plan_hot(bounds: Mapping[Bucket, LogBounds], *, is_pk: bool = False) -> UnionPlan:
    """The hot store alone: what its logs still hold; of PK tables the state, from KV snapshots."""
    if is_pk:
        return UnionPlan(
            snapshot_id=None, lake_offsets=OffsetMap(), needs_kv={b: v.end for b, v in bounds.items() if v.end}
        )
    tails = {b: OffsetRange(v.start, v.end) for b, v in bounds.items() if v.start < v.end}
    return UnionPlan(snapshot_id=None, lake_offsets=OffsetMap({b: r.start for b, r in tails.items()}), tails=tails)


def plan_lake(snapshot: LakeSnapshot | None) -> UnionPlan:
    """The lake alone."""
    if snapshot is None:
        return UnionPlan(snapshot_id=None, lake_offsets=OffsetMap())
    offsets = snapshot.offsets or OffsetMap()
    return UnionPlan(snapshot_id=snapshot.snapshot_id, lake_offsets=offsets, lake_at_ms=snapshot.committed_at_ms)


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
        raise InvalidRequest(
            what="as_of", reason=f"{text!r} is neither a snapshot id nor an ISO date and time"
        ) from None
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
    return (
        f"history is kept from {datetime.fromtimestamp(oldest / 1000, UTC).isoformat()} on ({len(snapshots)} snapshots)"
    )
