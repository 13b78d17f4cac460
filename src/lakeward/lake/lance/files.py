# SPDX-License-Identifier: Apache-2.0
"""Files of one Lance table: written fragments, deletion files, listing, deleting, rewriting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata

from lakeward.errors import LakeUnavailable
from lakeward.lake.core.columnmap import StoredColumn
from lakeward.lake.core.files import Deletion, FolderFiles, MarkedFiles, RewrittenFiles, RowFiles, WrittenFiles
from lakeward.lake.core.rewrite import NewFiles, RankTable, rewrite_group, write_rows
from lakeward.lake.lance import lake_errors
from lakeward.lake.lance.columns import scan_schema, view_of
from lakeward.lake.lance.datafile import (
    PREFIX,
    is_deletion_of,
    is_ours,
    load_deletions,
    read_offsets,
    round_prefix,
    write_deletions,
)
from lakeward.lake.lance.log import LanceGround
from lakeward.lake.lance.rows import LanceRows
from lakeward.lake.lance.table import DATA, DELETIONS, LanceTable, apply, fragments_of
from lakeward.lake.lance.writer import LanceLakeWriter, LanceWriteHandle, LanceWriteResult
from lakeward.lake.tablefiles import sync
from lakeward.model import Offsets, OffsetSet, RoundId, SnapshotId, TableInfo, to_arrow_field
from lakeward.protocol.codec import Packed
from lakeward.spi import REWRITE_KEY, LakeFile, RewriteResult, RewriteTask, StoredFile


class LanceFiles(FolderFiles[LanceGround], RowFiles[LanceGround, Any]):
    errors = staticmethod(lake_errors)

    def __init__(self, table: LanceTable, info: TableInfo) -> None:
        self._table, self._info, self._keys = table, info, info.descriptor.partitioning
        self.table, self.storage, self.folder = table.name, table.files, table.root
        self.data_folder = f"{table.root}/{DATA}"

    def handle(self, ground: LanceGround, round_id: RoundId) -> bytes:
        return LanceWriteHandle.of(self._table.root, ground.dataset, self._view(ground)).to_bytes()

    def _view(self, ground: LanceGround) -> list[StoredColumn]:
        return view_of(ground.dataset, self._info.schema)

    def prefix(self, round_id: RoundId) -> str:
        return f"{self._table.root}/{DATA}/{round_prefix(round_id)}"

    def at(self, ground: LanceGround, snapshot_id: SnapshotId | None = None) -> LanceRows:
        dataset = ground.dataset if snapshot_id is None else self._table.open(int(snapshot_id))
        return LanceRows(self._table, dataset, self._keys, self._view(ground))

    def among(self, ground: LanceGround, files: Sequence[Any]) -> LanceRows:
        return LanceRows(self._table, ground.dataset, self._keys, self._view(ground), files)

    def schema(self, ground: LanceGround) -> pa.Schema:
        return scan_schema(self._view(ground), to_arrow_field)

    def parse_written(self, ground: LanceGround, results: Sequence[bytes]) -> WrittenFiles[Any]:
        return WrittenFiles(files=[f for data in results for f in LanceWriteResult.from_bytes(data).fragments])

    def parse_rewritten(self, ground: LanceGround, result: RewriteResult) -> RewrittenFiles[Any]:
        group = LanceRewrittenGroup.from_bytes(result.payload)
        return RewrittenFiles(files=group.fragments, ranks=group.ranks)

    def number(self, ground: LanceGround, files: Sequence[Any]) -> Sequence[Any]:
        """Returns the fragments with their deletions on exactly this version: names of deletion files contain its
        number."""
        if not files:
            return []
        with self._table.stage(ground.version) as staged:
            appended = apply(staged, ground.version, lance.LanceOperation.Append(list(files)))
            by_path = {f.files[0].path: f for f in fragments_of(appended)}
        return [by_path[f.files[0].path] for f in files]

    def mark_deleted(
        self, ground: LanceGround, round_id: RoundId, deletions: Sequence[Deletion[Any]]
    ) -> MarkedFiles[Any]:
        """Writes one deletion file per fragment, merged with the existing one."""
        after, size, root = [], 0, self._table.root
        with lake_errors(self._table.name, "write deletions of"):
            for fragment, merged in ((d.file, d.deleted.union(d.positions)) for d in deletions):
                deletion, written = write_deletions(
                    self._table.files, root, fragment.id, ground.version, round_id, merged
                )
                facts = {**fragment.to_json(), "deletion_file": deletion.asdict()}
                after.append(FragmentMetadata.from_json(json.dumps(facts)))
                size += written
            sync([f"{root}/{deletion.path(fragment.id)}"])  # syncs the folder of all of them, too
        return MarkedFiles(files=after, delete_files=len(after), bytes_written=size)

    def was_emptied(self, ground: LanceGround, planned: LakeFile, result: RewriteResult) -> bool:
        """Whether a fragment left the table with its last row: the library removes it then."""
        since = LanceRewrittenGroup.from_bytes(result.payload).version
        later = [v for v in ground.versions if v >= since]
        without = next((v for v in later if planned.path not in self._table.paths(v)), None)
        if without is None or later[: without - since + 1] != list(range(since, without + 1)):
            return False
        keys = self._table.version(without).keys
        return bool(keys) and REWRITE_KEY not in keys

    def deleted_rows(self, file: LakeFile) -> OffsetSet:
        if not file.deletes:
            return OffsetSet()
        with lake_errors(self._table.name, "read deletions of"):
            return load_deletions(self._table.files, file.deletes[0].path, self._table.name)

    def row_offsets(self, file: LakeFile) -> Offsets:
        with lake_errors(self._table.name, "read a file of"):
            return read_offsets(file.path, self._table.storage_options)

    def list_files(self, prefix: str | None) -> Iterable[StoredFile]:
        """Lists data files by name, deletion files by id. A prefix that ends with a round selects both."""
        root = self._table.root
        data, name = f"{root}/{DATA}/", (prefix or "").removeprefix(f"{root}/{DATA}/{PREFIX}")
        round_id = RoundId(name.removesuffix("-")) if name.endswith("-") else None
        files = [f for f in super().list_files(prefix) if is_ours(f.path.removeprefix(data))]
        with lake_errors(self._table.name, "list files of"):
            if prefix is None or round_id is not None:
                deletions = self._table.files.walk(f"{root}/{DELETIONS}")
                files += [f for f in deletions if is_deletion_of(f.path, root, round_id)]
        return files


@dataclass(frozen=True)
class LanceRewrittenGroup(Packed):
    """Files of a rewritten group. `version`: the version that was read. `result` None: no row of the group was live."""

    packed_as: ClassVar = ("lance-rewrite", 1)

    version: int
    result: LanceWriteResult | None
    ranks: tuple[RankTable, ...]

    @property
    def fragments(self) -> list[Any]:
        return [] if self.result is None else self.result.fragments


def rewrite(table: LanceTable, task: RewriteTask, is_due: Callable[[], bool]) -> RewriteResult | None:
    """Rewrites a group with the deletes of the version that the rewrite was begun on."""
    handle = LanceWriteHandle.from_bytes(task.handle)
    version, rows, by_path = handle.version, None, dict[str, Any]()
    if not task.group.is_dropped:
        version = version if version in table.versions() else table.newest()
        dataset, info = table.open(version), task.table
        rows = LanceRows(table, dataset, info.descriptor.partitioning, view_of(dataset, info.schema))
        by_path = {rows.path(f): f for f in rows.files}
    since = max((f.sequence for f in task.group.files), default=0)

    def read(file: LakeFile) -> tuple[OffsetSet, Iterator[pa.Table]]:
        if rows is None or file.path not in by_path:
            raise LakeUnavailable(lake="lance", what=f"rewrite {table.name}", reason=f"{file.path} has left the table")
        fragment = by_path[file.path]
        return rows.deleted(fragment), rows.live(fragment, handle.arrow_schema)

    def write(live: pa.Table | None, ranks: Sequence[RankTable]) -> NewFiles:
        options = table.storage_options
        data = None if live is None else write_rows(task, live, lambda t: LanceLakeWriter(t, options, since))
        group = LanceRewrittenGroup(version, None if data is None else LanceWriteResult.from_bytes(data), tuple(ranks))
        count = sum(f.physical_rows for f in group.fragments)
        size = sum(f.files[0].file_size_bytes or 0 for f in group.fragments)
        return NewFiles(group.to_bytes(), count, size)

    return rewrite_group(task, is_due, read, write)
