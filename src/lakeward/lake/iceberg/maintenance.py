# SPDX-License-Identifier: Apache-2.0
"""Upkeep of one Iceberg table: that of every format, and taking over the rows of an existing table."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table.update import SetPropertiesUpdate

from lakeward.errors import CommitConflict
from lakeward.lake.core.log import HeadMoved
from lakeward.lake.core.storage import NamingMaintenance
from lakeward.lake.iceberg.commit.change import IcebergChange
from lakeward.lake.iceberg.commit.ground import IcebergGround, count_live_rows
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.files import open_table
from lakeward.lake.iceberg.log import IcebergSnapshotLog
from lakeward.lake.iceberg.meta.foreign import ADOPTED_TAG, find_adopted, spell_adopted
from lakeward.lake.iceberg.reader import pinned_reader
from lakeward.model import OFFSET, Bucket, SnapshotId, TableInfo, new_round_id
from lakeward.spi import AdoptedRows, CommitProperties, Precondition

_ATTEMPTS = 3


class IcebergLakeMaintenance(NamingMaintenance[IcebergGround]):
    _log: IcebergSnapshotLog

    def __init__(self, connection: IcebergConnection, table: TableInfo, log: IcebergSnapshotLog | None = None) -> None:
        log = log or IcebergSnapshotLog(connection, table)
        super().__init__(open_table(connection, log, table), log)
        self._connection = connection

    def take_over(self, offsets: Mapping[Bucket, int], at: SnapshotId | None = None) -> AdoptedRows:
        """Tries again when other engines commit meanwhile: rows that they added belong to the existing ones, unless
        those were read."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._take_over(offsets, at)
            except CommitConflict as error:
                if error.lost or self._info.is_pk or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the loop returns or raises")

    def _take_over(self, offsets: Mapping[Bucket, int], at: SnapshotId | None) -> AdoptedRows:
        ground = self._log.load()
        adopted = find_adopted(self._log.table, ground.table.metadata)
        if adopted is not None and self._is_taken(ground, at):
            return adopted
        if self._info.is_pk and ground.base.head != at:
            raise self._moved(f"main is at {ground.base.head}, not at {at}")
        adopted = self._count(ground)
        noting = SetPropertiesUpdate.model_validate({"updates": spell_adopted(adopted)})
        try:
            self._log.update(ground.table, "note the rows of", noting)
        except HeadMoved as error:
            raise self._moved(str(error)) from error
        if adopted.snapshot_id is not None:
            self.tag(ADOPTED_TAG, adopted.snapshot_id)
        ground = self._log.load()
        if ground.base.head != adopted.snapshot_id:
            raise self._moved(f"main is at {ground.base.head}, not at {adopted.snapshot_id}")
        properties = CommitProperties(
            round_id=new_round_id(), epoch=0, job="adoption", offsets=offsets, generation=ground.base.generation
        )
        committer = self._open_committer()
        committable = committer.build(ground, ground.base, properties, IcebergChange.of())
        committer.commit(committable, Precondition.on(self._info.table_id, ground.base))
        return adopted

    def _is_taken(self, ground: IcebergGround, at: SnapshotId | None) -> bool:
        """Whether an earlier call took the table over; for a PK table, one that read the same rows."""
        newest = ground.reconciled.newest
        if newest is None or not self._info.is_pk:
            return newest is not None
        return newest.parent_snapshot_id == (None if at is None else int(at))

    def _moved(self, reason: str) -> CommitConflict:
        return CommitConflict(table=self._log.table, round_id="adoption", reason=reason)

    def _count(self, ground: IcebergGround) -> AdoptedRows:
        """Counts rows; scans them if keys are deleted."""
        head = ground.head
        buckets = self._info.descriptor.bucket_count if self._info.is_pk else None
        if head is None:
            return AdoptedRows(snapshot_id=None, sequence=0, rows=0, buckets=buckets)
        at = SnapshotId(str(head.snapshot_id))
        rows = count_live_rows(ground.table, head, ())
        if rows is None:
            scanned = pinned_reader(self._connection, self._info, ground.table).scan(at, columns=[OFFSET])
            rows = sum(b.num_rows for b in scanned)
        return AdoptedRows(snapshot_id=at, sequence=head.sequence_number or 0, rows=rows, buckets=buckets)
