# SPDX-License-Identifier: Apache-2.0
"""Reads one lake table: its state for a round, snapshots, files and rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import SnapshotGone
from lakeward.model import OFFSET, Bucket, LakeBase, Offsets, OffsetSet, SnapshotId
from lakeward.spi.lakeerrors import TypedCalls
from lakeward.spi.lakefile import AdoptedRows, LakeFile, LakeSnapshot, LakeTotals


class LakeReader(TypedCalls, ABC):
    """Reads one lake table. Every call reads the catalog again unless it names a snapshot."""

    @abstractmethod
    def load_base(self) -> LakeBase:
        """Reconcile (design.md 6.1): offsets, token and fence of the newest ancestor of main that is ours.

        Raises `LakeRolledBack`, `LakeForeign`, `LakeTampered`, `LakeUnavailable`, `LakeTableGone`."""

    def load_base_as_is(self) -> LakeBase:
        """As `load_base`, for a resync: a rollback by others is accepted, main's chain stands as it is found.

        Where a format cannot tell a rollback from progress this is `load_base`."""
        return self.load_base()

    @abstractmethod
    def snapshots(self) -> Sequence[LakeSnapshot]:
        """Retained snapshots, oldest first, foreign ones included (`round_id` None)."""

    def load_snapshot(self, snapshot_id: SnapshotId | None = None) -> LakeSnapshot | None:
        """Loads one snapshot (default: main's head), with `offsets` from its newest ancestor that we wrote. None: there
        is no snapshot yet. Raises `SnapshotGone`. Default: looks it up in `snapshots`."""
        chosen = self.load_base_as_is().head if snapshot_id is None else snapshot_id
        if chosen is None:
            return None
        by_id = {s.snapshot_id: s for s in self.snapshots()}
        if chosen not in by_id:
            raise SnapshotGone(table=self._table_name, snapshot=chosen, advice="read again from the newest one")
        ancestor: LakeSnapshot | None = by_id[chosen]
        while ancestor is not None and ancestor.offsets is None:
            ancestor = None if ancestor.parent_id is None else by_id.get(ancestor.parent_id)
        return replace(by_id[chosen], offsets=None if ancestor is None else ancestor.offsets)

    @abstractmethod
    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        """Data files of a snapshot with the deletes that apply to each. Raises `SnapshotGone`."""

    @abstractmethod
    def scan(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Live rows of a snapshot, deletes applied, columns by the schema of today (field ids), system columns included
        when named in `columns` (default: the user's columns). Constant memory. Raises `SnapshotGone`,
        `LakeUnavailable`."""

    def scan_buckets(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket | None] | None = None,
        without: Mapping[Bucket, OffsetSet] | None = None,
    ) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        """As `scan`, each batch with its bucket; None if its file does not record it (another engine wrote it under
        another spec).

        `without` leaves out more rows, by bucket and offset; `columns` are named then. It does not reach files without
        a bucket."""
        known = {f.bucket for f in self.files(snapshot_id)}
        chosen = known if buckets is None else known & set(buckets)
        for bucket in sorted(b for b in chosen if b is not None):
            gone = (without or {}).get(bucket)
            scanned = columns if not gone else list(dict.fromkeys((*(columns or ()), OFFSET)))
            for batch in self.scan(snapshot_id, columns=scanned, filter=filter, buckets=[bucket]):
                yield bucket, _without(batch, gone, columns or ()) if gone else batch

    def pinned(self) -> LakeReader:
        """A reader for one union read: it may answer from the table as it was loaded by this call. Default: itself."""
        return self

    @property
    def has_offsets(self) -> bool:
        """Whether rows say their own offsets, as columns that any engine reads. In a clean table only `scan` tells
        them, and only of files whose bounds are known; what is unknown is -1."""
        return True

    @property
    def counts_by_commit(self) -> bool:
        """For a clean log table: true if files that do not record their offsets are counted in the order of their
        commits. A file that replaces others then gets their age, not that of the planned snapshot."""
        return True

    @property
    def rewrites_unplaced(self) -> bool:
        """Whether files of a clean log table that do not record their bucket can be rewritten into one that does not
        either: `RewriteGroup.is_unplaced`."""
        return False

    @property
    def adopted(self) -> AdoptedRows | None:
        """Rows that the table already held when it was adopted from another engine; None for all other tables."""
        return None

    def deleted_offsets(self, file: LakeFile) -> OffsetSet | None:
        """Offsets of the rows that a file's positional deletes and vectors take out of it, for engines that scan the
        file by themselves. None: not known. Equality deletes do not count. Raises `LakeUnavailable`."""
        return None

    def row_offsets(self, file: LakeFile) -> Offsets | None:
        """Offsets of all rows of a data file in their order, deleted ones too. None: not known. Raises
        `LakeUnavailable`."""
        return None

    def field_ids(self) -> Mapping[str, int]:
        """Column name of today -> field id in the data files, for engines that scan them by
        themselves. Empty: by name.
        """
        return {}

    def totals(self) -> LakeTotals:
        """Figures of the head, for metrics. Cheap: from metadata. Default: adds up `files`, deleted rows
        too; `is_exact` says whether there are any."""
        snapshots, head = self.snapshots(), self.load_base_as_is().head
        files = () if head is None else self.files(head)
        deletes = {d.path for f in files for d in f.deletes}
        return LakeTotals(
            data_files=len(files),
            delete_files=len(deletes),
            rows=sum(f.record_count for f in files),
            bytes=sum(f.size_bytes for f in files),
            snapshots=len(snapshots),
            is_exact=not deletes and not any(f.is_merged for f in files),
        )


def _without(batch: pa.RecordBatch, gone: OffsetSet, columns: Sequence[str]) -> pa.RecordBatch:
    keep = ~gone.mask(batch.column(OFFSET).to_numpy(zero_copy_only=False))
    return batch.filter(pa.array(keep)).select(list(columns))
