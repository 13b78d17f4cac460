# SPDX-License-Identifier: Apache-2.0
"""The change of a rewrite on the current head: which groups are still complete, which deletes are carried over, which
delete files touch no live file any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from lakeward.lake.iceberg.commit.change import NewFile
from lakeward.lake.iceberg.commit.foreignrows import plan_by_path
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.commit.resolve import Hit, data_candidates
from lakeward.lake.iceberg.datafile.result import RewrittenGroup
from lakeward.lake.iceberg.meta.location import canonical
from lakeward.lake.iceberg.meta.manifests import FileKey, file_key, first_row_id
from lakeward.lake.iceberg.meta.version import table_version
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.snapshotfiles import DeleteEntry, PlannedFile
from lakeward.model import Offsets, OffsetSet
from lakeward.spi import LakeFile, RewriteGroup, RewriteResult

_MERGED_BELOW = 4


@dataclass
class Replacement:
    """A planned rewrite. `hits`: rows of new files that were deleted since the plan. `merged`: rows of remaining files,
    whose delete files are merged into one."""

    data: list[NewFile] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    merged: list[Hit] = field(default_factory=list)
    drop: set[FileKey] = field(default_factory=set)
    groups: list[RewriteGroup] = field(default_factory=list)


def plan_replacement(
    ground: IcebergGround, partition_keys: tuple[str, ...], results: Sequence[RewriteResult]
) -> Replacement:
    """Reads the positions deleted from the inputs by now, all of which are live; writes nothing."""
    live = _live(ground, partition_keys)
    deletes = DeleteFilter(ground.table.io, ground.table.metadata.schema())
    plan = Replacement()
    for result in results:
        _take(plan, ground, result, [live[f.path] for f in result.group.files], deletes)
    dropped = [live[f.path] for g in plan.groups for f in g.files]
    remaining = [p for path, p in live.items() if (path, None) not in plan.drop]
    plan.drop |= _dangling(plan.groups, dropped, remaining, deletes)
    if table_version(ground.table.metadata) == 2:
        partitions = {(p.indexed.spec_id, p.file.partition) for p in dropped}
        near = [p for p in remaining if (p.indexed.spec_id, p.file.partition) in partitions]
        _merge_deletes(plan, near, deletes)
    return plan


def _merge_deletes(plan: Replacement, remaining: Sequence[PlannedFile], deletes: DeleteFilter) -> None:
    """Merges positions on remaining files from many small delete files into one for each partition: every round leaves
    one, and every reader of a file opens all that may name it."""
    touching: dict[tuple[int, Record], dict[FileKey, DeleteEntry]] = defaultdict(dict)
    for p in remaining:
        entries = (d for d in p.deletes if d.content == "positions")
        touching[p.indexed.spec_id, p.file.partition].update((file_key(d.file), d) for d in entries)
    small = {key for entries in touching.values() for key in _small(entries) if key not in plan.drop}
    for p in remaining:
        parts = [deletes.positions_in(d, p.file.file_path) for d in p.deletes if file_key(d.file) in small]
        if any(map(len, parts)):
            plan.merged.append(Hit(p.file, p.indexed.spec_id, OffsetSet(np.concatenate(parts)).values))
    plan.drop |= small


def _small(entries: Mapping[FileKey, DeleteEntry]) -> list[FileKey]:
    """Selects delete files to merge: the smallest, as long as the next has at most a certain multiple of their rows.
    Few remain, and a position is written again only when smaller files hold a quarter of its file's rows."""
    chosen, rows = list[FileKey](), 0
    for key, entry in sorted(entries.items(), key=lambda item: (item[1].file.record_count, str(item[0]))):
        if chosen and entry.file.record_count > _MERGED_BELOW * rows:
            break
        chosen.append(key)
        rows += entry.file.record_count
    return chosen if len(chosen) > 1 else []


def _live(ground: IcebergGround, partition_keys: tuple[str, ...]) -> dict[str, PlannedFile]:
    return {} if ground.head is None else plan_by_path(ground.table, ground.head, partition_keys)


def find_whole(
    ground: IcebergGround, partition_keys: tuple[str, ...], results: Sequence[RewriteResult]
) -> list[RewriteResult]:
    """Returns groups whose inputs are all live under their path and sequence number, have the current spec, as
    deletes by key would not reach a new file of another, and got no row ids since the plan, which the new file does
    not have."""
    live, spec_id = _live(ground, partition_keys), ground.table.metadata.default_spec_id

    def is_input(file: LakeFile) -> bool:
        planned = live.get(file.path)
        if planned is None or planned.indexed.spec_id != spec_id:
            return False
        is_same = (planned.indexed.entry.sequence_number or 0) == file.sequence
        return is_same and first_row_id(planned.file) == file.first_row_id

    return [r for r in results if all(map(is_input, r.group.files))]


def _take(
    plan: Replacement,
    ground: IcebergGround,
    result: RewriteResult,
    inputs: Sequence[PlannedFile],
    deletes: DeleteFilter,
) -> None:
    rewritten = RewrittenGroup.from_bytes(result.payload)
    new_files = [] if rewritten.result is None else data_candidates(ground.table, [rewritten.result])
    by_path = {p.file.file_path: p for p in inputs}
    late = [r.follow(deletes.positions(by_path[r.path].describe())) for r in rewritten.ranks]
    positions = np.sort(np.concatenate(late)) if late else np.empty(0, np.int64)
    plan.groups.append(result.group)
    plan.data += [NewFile(c.spec_id, c.file, result.group.sequence) for c in new_files]
    plan.hits += _hits([(c.spec_id, c.file) for c in new_files], positions)
    plan.drop |= {file_key(p.file) for p in inputs}


def _hits(files: Sequence[tuple[int, DataFile]], positions: Offsets) -> list[Hit]:
    """Assigns positions among all rows of a group to the files that have them."""
    hits, start = [], 0
    for spec_id, file in files:
        low, high = np.searchsorted(positions, [start, start + file.record_count])
        if low < high:
            hits.append(Hit(file, spec_id, positions[low:high] - start))
        start += file.record_count
    return hits


def _dangling(
    groups: Sequence[RewriteGroup],
    dropped: Sequence[PlannedFile],
    remaining: Sequence[PlannedFile],
    deletes: DeleteFilter,
) -> set[FileKey]:
    """Returns delete files that touched an input and touch no remaining file. Younger deletes by key apply to the new
    file."""
    touched = {file_key(d.file): d for p in dropped for d in p.deletes}
    used = {file_key(d.file) for p in remaining for d in p.deletes if d.content != "positions"}
    used |= {
        file_key(d.file)
        for d in touched.values()
        if d.content == "equality" and any(g.sequence < d.sequence for g in groups)
    }
    paths = {canonical(p.file.file_path) for p in remaining if all(d.content != "vector" for d in p.deletes)}
    return {key for key, d in touched.items() if key not in used and not _names_any(d, paths, deletes)}


def _names_any(delete: DeleteEntry, paths: set[str], deletes: DeleteFilter) -> bool:
    return delete.content == "positions" and not paths.isdisjoint(deletes.named_files(delete.file.file_path))
