# SPDX-License-Identifier: Apache-2.0
"""History of an Iceberg table: main's chain, our tag, foreign commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakeward.errors import LakeError
from lakeward.lake.core.history import LogSnapshot, OwnCommit, OwnHistory
from lakeward.lake.core.log import SnapshotHistory
from lakeward.lake.core.reconcile import load_base
from lakeward.lake.iceberg.commit.foreignrows import may_insert
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.summary import Reconciled, SummaryReader, reconcile, summary_of, walk
from lakeward.lake.iceberg.scan.scan import same_rows
from lakeward.model import LakeBase, OffsetMap, SnapshotId, TableInfo
from lakeward.spi import TABLE_ID_KEY, find_partitions


class IcebergHistory(SnapshotHistory[IcebergGround]):
    """Reads a table's snapshots. `loaded`: all answers come from this table, and the catalog is not asked again."""

    lake, ground_type = "iceberg", IcebergGround

    def __init__(self, connection: IcebergConnection, info: TableInfo, loaded: Table | None = None) -> None:
        self._connection, self._info, self.table = connection, info, str(info.path)
        self._summaries: SummaryReader | None = None
        self._pinned = None if loaded is None else self.ground(loaded)

    @property
    def is_pinned(self) -> bool:
        return self._pinned is not None

    def now_ms(self) -> int:
        return self._connection.clock.now_ms()

    def load(self) -> IcebergGround:
        return self._pinned or self.ground(self._connection.load_planned(self._info))

    def ground(self, table: Table) -> IcebergGround:
        self._summaries = self.summaries(table)
        return IcebergGround(table, self)

    def summaries(self, table: Table) -> SummaryReader:
        partitions = find_partitions(self._info.descriptor)
        return SummaryReader(self.table, self._info.table_id, table.io, partitions=partitions)

    def is_current(self, ground: IcebergGround) -> bool:
        """False: the catalog checks it at the commit, which requires the references of the ground."""
        return True

    def reconcile(self, table: Table) -> Reconciled:
        with lake_errors(self.table, "reconcile"):
            same = lambda head, tagged: same_rows(table, self._info, head, tagged)  # noqa: E731
            return reconcile(table.metadata, self.summaries(table), same)

    def base_of(self, ground: IcebergGround) -> LakeBase:
        return load_base(self, ground, self._info.table_id)

    def newest_first(self, ground: IcebergGround, *, with_expired: bool = False) -> Iterator[LogSnapshot]:
        chain = walk(ground.table.metadata).chain
        ids = {s.snapshot_id for s in chain}
        beside = [s for s in ground.table.metadata.snapshots if s.snapshot_id not in ids]
        beside.sort(key=lambda s: (s.sequence_number or 0, s.timestamp_ms), reverse=True)
        return map(self._log_snapshot, [*chain, *beside])

    def get(self, ground: IcebergGround, snapshot_id: SnapshotId) -> LogSnapshot:
        return self._log_snapshot(self.find_snapshot(ground, snapshot_id))

    def find_snapshot(self, ground: IcebergGround, snapshot_id: SnapshotId) -> Snapshot:
        """Raises `SnapshotGone`."""
        snapshot = ground.table.metadata.snapshot_by_id(int(snapshot_id)) if snapshot_id.isdigit() else None
        if snapshot is None:
            raise self.gone(snapshot_id)
        return snapshot

    def has(self, ground: IcebergGround, snapshot_id: SnapshotId) -> bool:
        return snapshot_id.isdigit() and ground.table.metadata.snapshot_by_id(int(snapshot_id)) is not None

    def own_history(self, ground: IcebergGround) -> OwnHistory:
        past, summaries = ground.reconciled, self.summaries(ground.table)
        is_tag_ours = past.tagged is not None and summaries.owner(past.tagged) == self._info.table_id
        counted = (past.newest, past.tagged if is_tag_ours else None)
        return OwnHistory(
            newest=_own(past.tagged, None) if past.is_rolled_back else _own(past.newest, past.owner),
            stands_on=_own(past.newest, past.owner),
            is_rolled_back=past.is_rolled_back,
            counted=tuple(summary_of(s) for s in counted if s is not None),
        )

    def own_at(self, ground: IcebergGround, snapshot_id: SnapshotId) -> OwnCommit | None:
        """Finds our newest commit below a snapshot. If other engines rewrote the table and expired the snapshots
        between, our tag still records the offsets of the head's rows, as for a round."""
        summaries = self.summaries(ground.table)
        for ancestor in walk(ground.table.metadata, int(snapshot_id)).chain:
            if summaries.owner(ancestor) == self._info.table_id:
                return _own(ancestor, self._info.table_id)
        with suppress(LakeError):
            past = ground.reconciled
            if snapshot_id == ground.head_id and not past.is_rolled_back and past.owner == self._info.table_id:
                return _own(past.newest, past.owner)
        return None

    def offsets(self, commit: OwnCommit) -> OffsetMap:
        """Reads offsets. Those of a Fluss job are in a separate file, where any load of the table finds it."""
        if self._summaries is None:
            self.load()
        assert self._summaries is not None
        return self._summaries.offsets(commit.snapshot_id, commit.keys)

    def offsets_of(self, snapshot: LogSnapshot) -> OffsetMap | None:
        """Returns only the offsets in the snapshot itself: the file of a Fluss job's offsets may not exist any more."""
        is_told = TABLE_ID_KEY in snapshot.facts
        return self.offsets(OwnCommit(snapshot.snapshot_id, snapshot.facts)) if is_told else None

    def _log_snapshot(self, snapshot: Snapshot) -> LogSnapshot:
        summary, parent = summary_of(snapshot), snapshot.parent_snapshot_id
        operation = summary.get("operation", "")
        return LogSnapshot(
            snapshot_id=SnapshotId(str(snapshot.snapshot_id)),
            parent_id=None if parent is None else SnapshotId(str(parent)),
            committed_at_ms=snapshot.timestamp_ms,
            operation=operation,
            sequence=snapshot.sequence_number or 0,
            keys=summary if summary.get(TABLE_ID_KEY) == self._info.table_id else {},
            facts=summary,
            adds_rows=may_insert(snapshot),
            removes_rows=operation in ("delete", "overwrite"),
        )


def _own(snapshot: Snapshot | None, owner: str | None) -> OwnCommit | None:
    """`owner`: the table id, which is in the path of the offsets of a Fluss job's snapshot."""
    if snapshot is None:
        return None
    summary = summary_of(snapshot)
    keys = summary if owner is None else {**summary, TABLE_ID_KEY: owner}
    return OwnCommit(SnapshotId(str(snapshot.snapshot_id)), keys)
