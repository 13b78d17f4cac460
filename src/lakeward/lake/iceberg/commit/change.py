# SPDX-License-Identifier: Apache-2.0
"""Files that a commit adds and removes, as data. A round, a fence and a rewrite are cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, UpdateMetrics, update_snapshot_summaries

from lakeward.lake.core.change import ChangeKind, CommitChange
from lakeward.lake.iceberg.meta.manifests import FileKey


@dataclass(frozen=True)
class NewFile:
    """A data or delete file that becomes live. `sequence`: its data sequence number; None: that of the commit."""

    spec_id: int
    file: DataFile
    sequence: int | None = None


@dataclass(frozen=True, kw_only=True)
class IcebergChange(CommitChange):
    """A commit's change. `drop`: names live files of the head, data and delete files alike. `rows_gone`: live rows that
    it removes, None if unknown. `missing`: replaced rows that other engines deleted."""

    data: tuple[NewFile, ...] = ()
    delete_files: tuple[NewFile, ...] = ()
    drop: frozenset[FileKey] = frozenset()
    rows_gone: int | None = 0
    missing: int = 0

    @classmethod
    def of(
        cls,
        *,
        data: Sequence[NewFile] = (),
        delete_files: Sequence[NewFile] = (),
        drop: Iterable[FileKey] = (),
        kind: ChangeKind | None = None,
        deletes: int = 0,
        rows_gone: int | None = 0,
        missing: int = 0,
    ) -> IcebergChange:
        """Builds a change and counts its files. `kind` None: derived as Iceberg names it."""
        drop, new_files = frozenset(drop), [n.file for n in (*data, *delete_files)]
        return cls(
            kind=kind or _kind(has_data=bool(data), removes=bool(delete_files or drop)),
            rows=sum(n.file.record_count for n in data),
            deletes=deletes,
            files=len(new_files),
            bytes_written=sum({f.file_path: f.file_size_in_bytes for f in new_files}.values()),
            data=tuple(data),
            delete_files=tuple(delete_files),
            drop=drop,
            rows_gone=rows_gone,
            missing=missing,
        )

    def summarize(self, dropped: Iterable[DataFile], head: Snapshot | None, keys: Mapping[str, str]) -> Summary:
        """Builds the summary: Iceberg's own figures, continued from the head's, and our keys. `dropped`: the files that
        `drop` names."""
        metrics = UpdateMetrics()
        for new in chain(self.data, self.delete_files):
            metrics.add_file(new.file)
        for file in dropped:
            metrics.remove_file(file)
        counted_as = _kind(has_data=bool(self.data), removes=bool(self.delete_files or self.drop))
        previous = None if head is None else head.summary
        counted = update_snapshot_summaries(Summary(Operation(counted_as), **metrics.to_dict(), **keys), previous)
        return Summary(Operation(self.kind), **counted.additional_properties)


def _kind(*, has_data: bool, removes: bool) -> ChangeKind:
    """Returns the operation; PyIceberg continues totals from append and overwrite only, not from a replace."""
    if not removes:
        return ChangeKind.APPEND
    return ChangeKind.UPSERT if has_data else ChangeKind.DROP
