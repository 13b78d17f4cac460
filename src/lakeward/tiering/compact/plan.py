# SPDX-License-Identifier: Apache-2.0
"""Which data files a compaction rewrites, and why: pure, printable (design.md 13.1).

A file's class is the power of half the fan-in that its live rows reach. Neighbours in offset order, the fan-in of them
at least, are merged when together they reach a class above each of them: every merge lifts every row it writes by a
class at least, whatever sizes come in whatever order. Half, because a merge of so many new files may as well take older
ones along: with rounds of like size a row is rewritten about log_fan-in(rows of a full file / rows of a round) times,
and a quarter fewer files are left than by whole classes. Rows, not bytes, are counted: they add up exactly, while eight
files of one row are hardly larger as one.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import Any

from lakeward.model import Bucket, partition_name
from lakeward.spi import LakeFile
from lakeward.tiering.work.options import CompactionPolicy

OPEN_BYTES = 1_000_000
"""Cost of opening a file, as bytes that could be scanned in that time: 10 ms at 100 MB/s."""

_DELETE_FILES = 4
"""Times the fan-in: so many delete files of a bucket are too many, where nothing else is to be done."""

DELETED_ROW_BYTES = 100
"""Cost of a deleted row: a reader reads it, looks it up and drops it."""


class Why(StrEnum):
    MERGE = "merge"
    """Small neighbours become a larger file."""

    PURGE = "purge"
    """Too many of its rows are deleted, or too many deletes by key lie on it."""

    DROP = "drop"
    """All of its rows are older than the changelog keeps them: no file comes in their place."""

    PACK = "pack"
    """Nothing came to this bucket for a while: what is left is packed once."""


@dataclass(frozen=True, kw_only=True)
class SizedFile:
    """A data file with what of it is alive."""

    file: LakeFile
    deleted: int

    @property
    def rows(self) -> int:
        return self.file.record_count - self.deleted

    @property
    def bytes(self) -> int:
        """Size of its live rows."""
        return self.file.size_bytes * self.rows // max(1, self.file.record_count)

    @property
    def keyed(self) -> int:
        """Deletes by key that every reader of this file reads as well."""
        return sum(d.content == "equality" for d in self.file.deletes)

    @property
    def newest_keyed(self) -> int:
        """The number of the snapshot that brought the newest of them."""
        return max((d.sequence for d in self.file.deletes if d.content == "equality"), default=0)


@dataclass(frozen=True, kw_only=True)
class PlannedGroup:
    """Files of one bucket that become one, in offset order."""

    bucket: Bucket
    files: tuple[SizedFile, ...]
    why: Why
    is_unplaced: bool = False
    """The files do not record their bucket: of `bucket` only the partition counts."""

    @property
    def bytes(self) -> int:
        """Bytes read; about as many are written, less the deleted rows."""
        return sum(f.file.size_bytes for f in self.files)

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    @property
    def deleted(self) -> int:
        return sum(f.deleted for f in self.files)

    @property
    def saved_files(self) -> int:
        """Data and delete files that a reader of these rows no longer opens."""
        deletes = {d.path for f in self.files for d in f.file.deletes}
        return len(self.files) + len(deletes) - (1 if self.rows else 0)

    @property
    def worth(self) -> float:
        """Bytes of reading that every scan saves, per byte that is rewritten."""
        return (self.saved_files * OPEN_BYTES + self.deleted * DELETED_ROW_BYTES) / max(1, self.bytes)


@dataclass(frozen=True, kw_only=True)
class CompactionPlan:
    """Groups, the most worthwhile first; `most_files`: of any bucket; `unplaced`: files that do not record their
    bucket, which are left to the engine that wrote them."""

    groups: tuple[PlannedGroup, ...] = ()
    files: int = 0
    most_files: int = 0
    unplaced: int = 0

    @property
    def saved_files(self) -> int:
        """The debt: files that need not be there. A delete file that lies on several groups is one."""
        deletes = {d.path for g in self.groups for f in g.files for d in f.file.deletes}
        return sum(len(g.files) - (1 if g.rows else 0) for g in self.groups) + len(deletes)

    @property
    def bytes(self) -> int:
        return sum(g.bytes for g in self.groups)

    def within(self, bytes: int) -> tuple[PlannedGroup, ...]:
        """The groups that one compaction rewrites: the best of them, up to so many bytes, one at least."""
        chosen: list[PlannedGroup] = []
        for group in self.groups:
            if chosen and sum(g.bytes for g in chosen) + group.bytes > bytes:
                break
            chosen.append(group)
        return tuple(chosen)


def plan_compaction(
    files: Iterable[LakeFile], policy: CompactionPolicy, deleted: Mapping[str, int] | None = None
) -> CompactionPlan:
    """`files` are those of one snapshot, `deleted` the deleted rows of those (by path) whose deletes do not tell. Files
    that tell no bucket (others wrote them under another spec) are left."""
    deleted_rows = deleted or {}
    buckets, unplaced = defaultdict[Bucket, list[LakeFile]](list), 0
    for file in files:
        if file.bucket is None:
            unplaced += 1
        else:
            buckets[file.bucket].append(file)
    sized = {bucket: _sized(bucket_files, deleted_rows, policy) for bucket, bucket_files in buckets.items()}
    groups = [g for bucket, bucket_files in sized.items() for g in _plan_bucket(bucket, bucket_files, policy)]
    groups.sort(key=lambda g: (-g.worth, g.bucket, g.files[0].file.path))
    sizes = [len(bucket_files) for bucket_files in buckets.values()]
    return CompactionPlan(groups=tuple(groups), files=sum(sizes), most_files=max(sizes, default=0), unplaced=unplaced)


def plan_unplaced(
    files: Iterable[LakeFile], policy: CompactionPolicy, deleted: Mapping[str, int] | None = None
) -> CompactionPlan:
    """For files that do not record their bucket: neighbours by their commits, within a partition."""
    placed = [replace(f, bucket=Bucket(partition_name(list(f.partition.values())), 0)) for f in files]
    plan = plan_compaction(placed, replace(policy, by_commit=True), deleted)
    return replace(plan, groups=tuple(replace(g, is_unplaced=True) for g in plan.groups))


def join_plans(plans: Sequence[CompactionPlan]) -> CompactionPlan:
    """Joins plans of files that are not merged with each other."""
    groups = sorted((g for p in plans for g in p.groups), key=lambda g: (-g.worth, g.bucket, g.files[0].file.path))
    return CompactionPlan(
        groups=tuple(groups),
        files=sum(p.files for p in plans),
        most_files=sum(p.most_files for p in plans),
        unplaced=sum(p.unplaced for p in plans),
    )


def plan_drop(over: Mapping[Bucket, Sequence[LakeFile]], files: int) -> CompactionPlan:
    """Files that go, of so many."""
    groups = (
        PlannedGroup(bucket=b, files=tuple(SizedFile(file=f, deleted=f.record_count) for f in gone), why=Why.DROP)
        for b, gone in sorted(over.items())
    )
    return CompactionPlan(groups=tuple(groups), files=files)


def describe_compaction(plan: CompactionPlan) -> list[dict[str, Any]]:
    """One plain row per group, for `lakeward maintain --explain`."""
    return [
        {
            "bucket": None if g.is_unplaced else str(g.bucket),
            "why": str(g.why),
            "files": len(g.files),
            "rows": g.rows,
            "deleted_rows": g.deleted,
            "saves_files": g.saved_files,
            "rewrites_bytes": g.bytes,
        }
        for g in plan.groups
    ]


def may_be_worn(file: LakeFile, policy: CompactionPolicy) -> bool:
    """Whether its deleted rows must be counted: delete files say how many rows they name, of all files together."""
    named = [d.record_count for d in file.deletes if d.content == "positions"]
    return len(named) > 0 and sum(named) > policy.worn_rows(file)


def _sized(files: Sequence[LakeFile], deleted: Mapping[str, int], policy: CompactionPolicy) -> list[SizedFile]:
    """In offset order; files with unknown offsets come last."""
    named: dict[str, int] = defaultdict(int)
    for file in files:
        for delete in file.deletes:
            named[delete.path] += file.record_count
    sized = [SizedFile(file=f, deleted=deleted.get(f.path, _guess(f, named))) for f in files]
    if policy.by_commit:
        return sorted(sized, key=lambda s: (s.file.sequence, s.file.path))
    return sorted(sized, key=lambda s: (s.file.offsets is None, s.file.offsets and s.file.offsets.start, s.file.path))


def _guess(file: LakeFile, named: dict[str, int]) -> int:
    """A vector is of one data file; a delete file that names several counts for each by its rows."""
    vectors = [d.record_count for d in file.deletes if d.content == "vector"]
    positions = [d for d in file.deletes if d.content == "positions"]
    shares = [d.record_count * file.record_count / max(1, named[d.path]) for d in positions]
    return min(file.record_count, round(sum([*vectors, *shares])))


def _plan_bucket(bucket: Bucket, files: list[SizedFile], policy: CompactionPolicy) -> Iterator[PlannedGroup]:
    """Files that are merged by key when they are read have no size at which they are done: each one that is left is
    one more to merge for every reader. Of a small bucket they all become one: that costs less than to open them."""
    if any(f.file.is_merged for f in files):
        policy = replace(policy, target_bytes=sys.maxsize)
        is_small = sum(f.bytes for f in files) <= OPEN_BYTES and all(_is_open(f, policy) for f in files)
        if is_small and len(files) >= policy.growth:
            yield PlannedGroup(bucket=bucket, files=tuple(files), why=Why.MERGE)
            return
    is_quiet = max(n for f in files for n in _sequences(f.file)) <= policy.quiet_sequence
    taken: set[str] = set()
    for run in _runs(files, lambda f: _is_open(f, policy)):
        for part in _packs(run, policy) if is_quiet else _merges(run, _top_class(run, policy.growth), policy):
            taken.update(f.file.path for f in part)
            yield PlannedGroup(bucket=bucket, files=tuple(part), why=Why.PACK if is_quiet else Why.MERGE)
    worn = [f for f in files if f.file.path not in taken and _is_worn(f, policy)]
    for f in worn or ([] if taken else _most_named(files, policy)):
        yield PlannedGroup(bucket=bucket, files=(f,), why=Why.PURGE)


def _sequences(file: LakeFile) -> Iterator[int]:
    yield file.sequence
    yield from (d.sequence for d in file.deletes)


def _is_open(f: SizedFile, policy: CompactionPolicy) -> bool:
    """Still to grow: below half of the target, so that two neighbours fit into one file."""
    return (policy.by_commit or f.file.offsets is not None) and f.bytes * 2 < policy.target_bytes


def _is_worn(f: SizedFile, policy: CompactionPolicy) -> bool:
    """Deletes by key lie on every older file of a bucket: as many as the fan-in are waited for, or that no more come,
    else each of them would have all files rewritten."""
    is_done = 0 < f.newest_keyed <= policy.quiet_sequence
    return f.deleted > policy.worn_rows(f.file) or f.keyed >= policy.fan_in or is_done


def _most_named(files: list[SizedFile], policy: CompactionPolicy) -> list[SizedFile]:
    """Rounds that only delete leave a delete file each and nothing to merge. The commit of any rewrite merges those of
    its bucket, so once there are many the smallest file that they name is rewritten."""
    named = [f for f in files if any(d.content == "positions" for d in f.file.deletes)]
    delete_files = {d.path for f in named for d in f.file.deletes if d.content == "positions"}
    many = len(delete_files) >= policy.fan_in * _DELETE_FILES
    return [min(named, key=lambda f: (f.file.size_bytes, f.file.path))] if many else []


def _packs(run: list[SizedFile], policy: CompactionPolicy) -> Iterator[list[SizedFile]]:
    """A file that is merged when it is read, with no other to merge it with, becomes one that is not."""
    parts = _cut(run, policy.target_bytes)
    return (p for p in parts if len(p) > 1 or p[0].file.deletes or p[0].file.is_merged)


def _merges(run: list[SizedFile], power: int, policy: CompactionPolicy) -> Iterator[list[SizedFile]]:
    """Neighbours below a class that reach it together; the highest class first, as what it takes is merged once."""
    if power < 1:
        return
    floor = policy.growth**power
    for window in _runs(run, lambda f: f.rows < floor):
        *full, last = _cut(window, policy.target_bytes)
        yield from full
        if _rows(last) >= floor and len(last) >= policy.fan_in:
            yield last
        else:
            yield from _merges(last, power - 1, policy)


def _top_class(run: list[SizedFile], growth: int) -> int:
    power = 0
    while growth ** (power + 1) <= _rows(run):
        power += 1
    return power


def _rows(files: Iterable[SizedFile]) -> int:
    return sum(f.rows for f in files)


def _runs(files: Iterable[SizedFile], belongs: Callable[[SizedFile], bool]) -> Iterator[list[SizedFile]]:
    """Neighbours that all belong."""
    return (list(run) for fits, run in groupby(files, belongs) if fits)


def _cut(run: list[SizedFile], bytes: int) -> list[list[SizedFile]]:
    """Parts of at most so many bytes. All but the last hold at least half of it: two neighbours below that fit."""
    parts: list[list[SizedFile]] = [[]]
    size = 0
    for f in run:
        if size + f.bytes > bytes:
            parts.append([])
            size = 0
        parts[-1].append(f)
        size += f.bytes
    return parts
