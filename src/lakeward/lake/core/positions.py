# SPDX-License-Identifier: Apache-2.0
"""File changes of a commit in a format that deletes rows by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import takewhile
from typing import Any, Generic

import numpy as np

from lakeward.errors import ForeignRowsFound, LakeHistoryGone, ReplacedRowMissing
from lakeward.lake.core.change import ChangeKind, Changes, F, RoundWork, RowFileChange, WholeGroup
from lakeward.lake.core.files import Deletion, MarkedFiles, RewrittenFiles, RowFiles, SnapshotFiles
from lakeward.lake.core.foreign import Positions, check_foreign, find_foreign_rows
from lakeward.lake.core.history import LogSnapshot
from lakeward.lake.core.log import G, SnapshotLog
from lakeward.model import Bucket, OffsetRange, OffsetSet, RoundId, SnapshotId, TableInfo, fault_point
from lakeward.spi import Renewal, RewriteResult

Wanted = Mapping[Bucket, OffsetSet]
_NONE = OffsetSet()


def resolve(
    head: SnapshotFiles[F], new: SnapshotFiles[F], replaced: Wanted, renewed: Wanted, positions: Positions
) -> tuple[Positions, dict[Bucket, OffsetSet]]:
    """Adds replaced offsets, found in files of the head or of this round, and renewed ones, found in files of the head
    alone, to `positions`. Also returns the replaced offsets that no file has."""
    parts, missing = {key: [p] for key, p in positions.items()}, dict(replaced)
    both = {b: replaced.get(b, _NONE).union(renewed.get(b, _NONE)) for b in {*replaced, *renewed}}
    for side, expected in ((head, both), (new, replaced)):
        for file in side.files if any(expected.values()) else ():
            bucket = side.bucket(file)
            near = expected.values() if bucket is None else [expected.get(bucket, _NONE)]
            if not any(_may_hold(side.bounds(file), offsets) for offsets in near):
                continue
            offsets = side.offsets(file)
            for bucket, places in side.places(file):
                if bucket is None or bucket not in expected:
                    continue
                among = offsets if places is None else offsets[places]
                at = expected[bucket].mask(among).nonzero()[0]
                if len(at):
                    parts.setdefault(side.key(file), []).append(OffsetSet(at if places is None else places[at]))
                    if bucket in missing:
                        missing[bucket] = missing[bucket].minus(OffsetSet(among[at]))
    resolved = {key: reduce(OffsetSet.union, sets) for key, sets in parts.items()}
    return resolved, {b: offsets for b, offsets in sorted(missing.items()) if offsets}


def _may_hold(bounds: OffsetRange | None, wanted: OffsetSet) -> bool:
    if not wanted or bounds is None:
        return bool(wanted)
    return len(wanted.below(bounds.stop)) > len(wanted.below(bounds.start))


class PositionChanges(Changes[G, RowFileChange[F]], Generic[G, F]):
    def __init__(self, info: TableInfo, log: SnapshotLog[G, Any, Any], files: RowFiles[G, F]) -> None:
        self._info, self._log, self._files = info, log, files

    def plan_round(self, ground: G, work: RoundWork) -> RowFileChange[F]:
        written, head, round_id = self._files.parse_written(ground, work.results), self._files.at(ground), _id(work)
        positions = self._find_foreign(ground, head, work.renewal, is_resync=work.is_resync)
        fault_point("lake.before-resolve", round_id=round_id)
        needs_numbers = bool(work.replaced or work.renewed or positions)
        added = self._files.number(ground, written.files) if needs_numbers else written.files
        new = self._files.among(ground, added)
        positions, missing = resolve(head, new, work.replaced, work.renewed, positions)
        if missing and not self._others_deleted(ground):
            bucket, offsets = next(iter(missing.items()))
            raise ReplacedRowMissing(
                table=self._log.table, bucket=str(bucket), offset=int(offsets.values[0]), count=len(offsets)
            )
        deletions = [*_deletions(head, positions), *_deletions(new, positions)]
        marked, after = self._mark(ground, round_id, deletions), dict[str, F]()
        after.update((head.key(f), f) for f in marked.files)
        deletes = sum(len(d.positions) for d in deletions)
        rows = sum(new.rows(f) for f in added)
        return RowFileChange(
            kind=ChangeKind.UPSERT if deletions or written.beside else ChangeKind.APPEND,
            rows=rows,
            deletes=deletes,
            files=len(added) + len(written.beside) + marked.delete_files,
            bytes_written=sum(new.size(f) for f in added) + written.beside_bytes + marked.bytes_written,
            total_rows=sum(head.live_rows(f) for f in head.files) + rows - deletes,
            added=tuple(after.get(new.key(f), f) for f in added),
            changed=tuple((f, after[head.key(f)]) for f in head.files if head.key(f) in after),
            beside=tuple(written.beside),
        )

    def find_whole(self, ground: G, results: Sequence[RewriteResult]) -> Sequence[WholeGroup]:
        head = self._files.at(ground)
        try:
            if self._find_foreign(ground, head, None, is_resync=False):
                return []
        except (ForeignRowsFound, LakeHistoryGone):
            return []
        live, whole_groups = {head.path(f): f for f in head.files}, []
        for result in results:
            missing_inputs = [f for f in result.group.files if f.path not in live or not head.is_input(live[f.path], f)]
            if all(self._files.was_emptied(ground, f, result) for f in missing_inputs):
                whole_groups.append(WholeGroup(result, frozenset(f.path for f in missing_inputs)))
        return whole_groups

    def plan_rewrite(self, ground: G, groups: Sequence[WholeGroup], round_id: RoundId) -> RowFileChange[F]:
        head = self._files.at(ground)
        live = {head.path(f): f for f in head.files}
        rewritten = [self._files.parse_rewritten(ground, g.result) for g in groups]
        added = self._files.number(ground, [f for r in rewritten for f in r.files])
        new, late, first = self._files.among(ground, added), Positions(), 0
        for group, result in zip(groups, rewritten, strict=True):
            new_files, first = added[first : first + len(result.files)], first + len(result.files)
            deleted = {f.path: OffsetSet(np.arange(f.record_count)) for f in group.result.group.files}
            deleted |= {p: head.deleted(live[p]) for p in deleted if p not in group.emptied}
            late |= _carry_over(new, new_files, result, deleted)
        deletions = _deletions(new, late)
        marked = self._mark(ground, round_id, deletions)
        after = {new.key(f): f for f in marked.files}
        return RowFileChange(
            kind=ChangeKind.DROP if all(g.result.group.is_dropped for g in groups) else ChangeKind.REWRITE,
            rows=sum(g.result.rows for g in groups),
            deletes=sum(map(len, late.values())),
            files=len(added) + marked.delete_files,
            bytes_written=sum(g.result.bytes_written for g in groups) + marked.bytes_written,
            added=tuple(after.get(new.key(f), f) for f in added),
            removed=tuple(live[f.path] for g in groups for f in g.result.group.files if f.path not in g.emptied),
        )

    def _find_foreign(
        self, ground: G, head: SnapshotFiles[F], renewal: Renewal | None, *, is_resync: bool
    ) -> Positions:
        """Finds foreign rows to delete, which no changelog has. Raises `ForeignRowsFound` if the table's option refuses
        them."""
        newest_own = self._log.own_history(ground).newest if self._info.is_pk else None
        if newest_own is None:
            return {}
        since = list(takewhile(lambda s: not s.keys, self._log.newest_first(ground, with_expired=True)))
        foreign = [s for s in since if s.adds_rows]
        if not foreign:
            return {}
        if not self._log.has(ground, newest_own.snapshot_id):
            if is_resync:
                return {}
            raise LakeHistoryGone(table=self._log.table, ours=newest_own.snapshot_id, snapshots=_ids(foreign))
        compared = () if renewal is None else renewal.offsets.keys()
        seen = set() if renewal is None else self._keys_at(ground, renewal.head)
        hits, copies = find_foreign_rows(self._files.at(ground, newest_own.snapshot_id), head, compared, seen)
        if hits:
            check_foreign(
                self._info,
                [s.snapshot_id for s in reversed(foreign)],
                sum(map(len, hits.values())),
                next(head.path(f) for f in head.files if head.key(f) in hits),
                is_resync=is_resync,
                is_ambiguous=copies > 0,
            )
        return hits

    def _keys_at(self, ground: G, snapshot_id: SnapshotId) -> set[str]:
        """Returns the keys of a snapshot's files; none if it has expired."""
        if not self._log.has(ground, snapshot_id):
            return set()
        files = self._files.at(ground, snapshot_id)
        return {files.key(f) for f in files.files}

    def _others_deleted(self, ground: G) -> bool:
        """Whether the history shows that another engine deleted rows. A replaced row may then be missing for that
        reason."""
        history = self._log.newest_first(ground, with_expired=True)
        return any(s.removes_rows and not s.keys for s in history)

    def _mark(self, ground: G, round_id: RoundId, deletions: Sequence[Deletion[F]]) -> MarkedFiles[F]:
        if not deletions:
            return MarkedFiles(files=(), delete_files=0, bytes_written=0)
        fault_point("lake.before-deletes", round_id=round_id)
        return self._files.mark_deleted(ground, round_id, deletions)


def _ids(snapshots: Sequence[LogSnapshot]) -> str:
    return ", ".join(s.snapshot_id for s in reversed(snapshots))


def _id(work: RoundWork) -> RoundId:
    return work.properties.round_id


def _deletions(files: SnapshotFiles[F], positions: Positions) -> list[Deletion[F]]:
    """Leaves out rows that are deleted already, and files without further deletions."""
    found = []
    for file in files.files if positions else ():
        if wanted := positions.get(files.key(file)):
            fresh = wanted.minus(files.dead(file))
            if fresh:
                found.append(Deletion(file=file, positions=fresh, deleted=files.deleted(file)))
    return found


def _carry_over(
    new: SnapshotFiles[F], own: Sequence[F], result: RewrittenFiles[F], deleted: Mapping[str, OffsetSet]
) -> Positions:
    """Returns rows deleted from the inputs since the plan, as positions in a group's new files."""
    parts = [ranks.follow(deleted[ranks.path].values) for ranks in result.ranks]
    rows = OffsetSet(np.concatenate([np.empty(0, np.int64), *parts])).values
    carried, first = Positions(), 0
    for file in own:
        low, high = np.searchsorted(rows, [first, first + new.rows(file)])
        if low < high:
            carried[new.key(file)] = OffsetSet.from_sorted(rows[low:high] - first)
        first += new.rows(file)
    return carried
