# SPDX-License-Identifier: Apache-2.0
"""Sorts a snapshot's files by what has to be taken out of them. Pure but for the lake's answer which offsets are
deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakeward.model import Bucket, OffsetSet
from lakeward.spi import LakeDelete, LakeFile

MOST_OFFSETS = 2_000_000
"""Rows taken out by offset that go through the driver; beyond it Spark joins delete files itself."""

FEW = 10
"""A tenth of the rows: looking at them takes less time than the planning of one more scan."""

DeletedOffsets = Callable[[LakeFile], OffsetSet | None]


@dataclass(frozen=True)
class FileGroups:
    """`clean` files are scanned without any join. Rows of `dead` go out of `by_offset` files, by bucket and offset.
    `by_path` files have deletes that only (file, row index) or a key tell; `dead` holds for them too."""

    clean: tuple[LakeFile, ...]
    by_offset: tuple[LakeFile, ...]
    by_path: tuple[LakeFile, ...]
    dead: Mapping[Bucket, OffsetSet]


def group_files(
    files: Iterable[LakeFile], replaced: Mapping[Bucket, OffsetSet], deleted_offsets: DeletedOffsets
) -> FileGroups:
    """`replaced`: what the tail replaced on the lake's side. A file whose bounds hold none of it and that has no
    deletes is clean; unknown bounds count as touched."""
    clean: list[LakeFile] = []
    touched: list[LakeFile] = []
    by_path: list[LakeFile] = []
    deleted: dict[str, OffsetSet] = {}
    room = MOST_OFFSETS - sum(len(s) for s in replaced.values())
    for file in files:
        dead_offsets = _find_deleted(file, room, deleted_offsets)
        if file.deletes and dead_offsets is None:
            by_path.append(file)
        elif file.deletes or _is_touched(file, replaced):
            touched.append(file)
            deleted[file.path] = dead_offsets or OffsetSet()
            room -= len(deleted[file.path])
        else:
            clean.append(file)
    doubtful = _doubtful(touched, deleted)
    by_path += [f for f in touched if f.path in doubtful]
    by_offset = [f for f in touched if f.path not in doubtful]
    dead: dict[Bucket, list[OffsetSet]] = defaultdict(list, {b: [s] for b, s in replaced.items() if s})
    for file in by_offset:
        if file.bucket is not None and deleted[file.path]:
            dead[file.bucket].append(deleted[file.path])
    return _in_fewer(
        FileGroups(tuple(clean), tuple(by_offset), tuple(by_path), {b: _joined(parts) for b, parts in dead.items()})
    )


def _in_fewer(groups: FileGroups) -> FileGroups:
    """Few clean rows beside many that are looked at anyway are looked at with them: a scan of their own costs more to
    plan.
    """
    few = sum(f.record_count for f in groups.clean) * FEW < sum(f.record_count for f in groups.by_offset)
    if not groups.clean or not few or any(_is_touched(f, groups.dead) for f in groups.clean):
        return groups
    return FileGroups((), (*groups.by_offset, *groups.clean), groups.by_path, groups.dead)


def _find_deleted(file: LakeFile, room: int, deleted_offsets: DeletedOffsets) -> OffsetSet | None:
    """None where Spark has to join: keys, an unknown bucket, rows without an offset of their own (Fluss's KV snapshots
    have none), or too many rows for the driver."""
    if (
        not file.deletes
        or file.bucket is None
        or file.offsets is None
        or any(d.content == "equality" for d in file.deletes)
    ):
        return None
    vectors = any(d.content == "vector" for d in file.deletes)
    if sum(d.record_count for d in file.deletes) > room and not vectors:
        return None
    return deleted_offsets(file)


def _doubtful(files: Sequence[LakeFile], deleted: Mapping[str, OffsetSet]) -> set[str]:
    """Files with deletes whose offsets may also be live in another file of the group: another engine's UPDATE copies
    them. Only its file identifies such a row."""
    by_bucket: dict[Bucket | None, list[LakeFile]] = defaultdict(list)
    for file in files:
        by_bucket[file.bucket].append(file)
    doubtful_paths: set[str] = set()
    for file in files:
        deleted_positions = deleted[file.path]
        if deleted_positions and any(
            _holds(other, deleted_positions)
            for other in (*by_bucket[file.bucket], *by_bucket[None])
            if other is not file
        ):
            doubtful_paths.add(file.path)
    return doubtful_paths


def _holds(file: LakeFile, offsets: OffsetSet) -> bool:
    """Whether the file's bounds hold any of these offsets."""
    return file.offsets is None or len(offsets.below(file.offsets.stop)) > len(offsets.below(file.offsets.start))


def _is_touched(file: LakeFile, replaced: Mapping[Bucket, OffsetSet]) -> bool:
    if file.bucket is None:
        return any(replaced.values())
    offsets = replaced.get(file.bucket)
    return bool(offsets) and offsets is not None and _holds(file, offsets)


def _joined(parts: Sequence[OffsetSet]) -> OffsetSet:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    return whole


Scope = tuple[Bucket | None, tuple[tuple[str, str], ...], str]


def scope_keys(files: Sequence[LakeFile]) -> tuple[dict[str, int], dict[str, set[int]]]:
    """Which files each equality delete reaches, as numbers that both carry: data file -> its scope, delete file -> its
    scopes.

    A delete reaches a file if they share a scope and the file's sequence number is lower. A scope is a partition and
    bucket; where that would reach a file that the lake did not name (other specs), each file is one of its own."""
    scopes = _scopes(files, by_file=False)
    return scopes if _is_exact(files, *scopes) else _scopes(files, by_file=True)


def _scopes(files: Sequence[LakeFile], *, by_file: bool) -> tuple[dict[str, int], dict[str, set[int]]]:
    numbers: dict[Scope, int] = {}
    data = {f.path: numbers.setdefault(_scope(f, by_file), len(numbers)) for f in files}
    deletes: dict[str, set[int]] = defaultdict(set)
    for file, delete in _key_deletes(files):
        deletes[delete.path].add(data[file.path])
    return data, deletes


def _scope(file: LakeFile, by_file: bool) -> Scope:
    return file.bucket, tuple(sorted(file.partition.items())), file.path if by_file else ""


def _key_deletes(files: Iterable[LakeFile]) -> Iterator[tuple[LakeFile, LakeDelete]]:
    return ((f, d) for f in files for d in f.deletes if d.content == "equality")


def _is_exact(files: Sequence[LakeFile], data: Mapping[str, int], deletes: Mapping[str, set[int]]) -> bool:
    by_scope: dict[int, dict[str, int]] = defaultdict(dict)
    for _, delete in _key_deletes(files):
        for scope in deletes[delete.path]:
            by_scope[scope][delete.path] = delete.sequence
    return all(
        {path for path, sequence in by_scope[data[f.path]].items() if f.sequence < sequence}
        == {d.path for _, d in _key_deletes([f])}
        for f in files
    )
