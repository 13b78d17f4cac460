# SPDX-License-Identifier: Apache-2.0
"""What a commit adds to the live files and what it takes away, as data. A round, a fence and a rewrite are cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, UpdateMetrics, update_snapshot_summaries

from lakeward.lake.iceberg.meta.manifests import FileKey
from lakeward.model.ids import RoundId


@dataclass(frozen=True)
class NewFile:
    """A data or delete file that becomes live. `sequence` is its data sequence number; None: that of the commit."""

    spec_id: int
    file: DataFile
    sequence: int | None = None


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """`drop` names live files of the head, data and delete files alike. `operation` None: told by what changes.

    `rows_gone`: live rows that it takes away, None where nobody knows. `missing`: replaced rows that others' deletes
    explain. `fence_step` is what a fence adds. `rewrite_id`: files bear its name, not the round's."""

    data: tuple[NewFile, ...] = ()
    deletes: tuple[NewFile, ...] = ()
    drop: frozenset[FileKey] = frozenset()
    operation: Operation | None = None
    rows_gone: int | None = 0
    missing: int = 0
    fence_step: int = 0
    rewrite_id: RoundId | None = None

    @property
    def files(self) -> list[DataFile]:
        return [n.file for n in (*self.data, *self.deletes)]

    @property
    def rows(self) -> int:
        return sum(n.file.record_count for n in self.data)

    def summarize(self, dropped: Iterable[DataFile], head: Snapshot | None, ours: Mapping[str, str]) -> Summary:
        """Iceberg's own figures, counted on from the head's, and our keys. `dropped`: the files that `drop` names."""
        metrics = UpdateMetrics()
        for file in self.files:
            metrics.add_file(file)
        for file in dropped:
            metrics.remove_file(file)
        told = Operation.APPEND if not self.deletes and not self.drop else Operation.OVERWRITE
        told = Operation.DELETE if told == Operation.OVERWRITE and not self.data else told
        previous = None if head is None else head.summary
        counted = update_snapshot_summaries(Summary(told, **metrics.to_dict(), **ours), previous)
        return Summary(self.operation or told, **counted.additional_properties)
