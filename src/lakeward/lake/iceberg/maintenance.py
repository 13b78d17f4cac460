# SPDX-License-Identifier: Apache-2.0
"""Upkeep of one Iceberg table: listing, fencing, expiry. The only place where files are deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lakeward.errors import CommitConflict, SnapshotGone
from lakeward.lake.iceberg.commit.change import FileChange
from lakeward.lake.iceberg.commit.ground import CommitGround
from lakeward.lake.iceberg.commit.liverows import count_live_rows
from lakeward.lake.iceberg.commit.request import FOR_EVER_MS, assert_ref
from lakeward.lake.iceberg.committer import IcebergLakeCommitter
from lakeward.lake.iceberg.meta.connection import IcebergConnection
from lakeward.lake.iceberg.meta.expiry import Reachable, expiring, only_in, plan_expiry
from lakeward.lake.iceberg.meta.failures import describe, lake_errors
from lakeward.lake.iceberg.meta.folder import delete_file, list_folder
from lakeward.lake.iceberg.meta.foreign import ADOPTED_TAG, spell_adopted
from lakeward.lake.iceberg.meta.location import (
    OURS,
    cache_path,
    canonical,
    carries,
    data_folder,
    is_live,
    metadata_folder,
)
from lakeward.lake.iceberg.meta.ownpaths import check_path
from lakeward.lake.iceberg.reader import IcebergLakeReader
from lakeward.model.bucket import Bucket
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, SnapshotId, new_round_id
from lakeward.model.round import LakeBase
from lakeward.model.schema import OFFSET
from lakeward.model.table import TableInfo
from lakeward.spi.commit import CommitProperties, Precondition
from lakeward.spi.lake.maintenance import PROBE, LakeMaintenance
from lakeward.spi.lakefile import AdoptedRows, Expired, LakeSnapshot, StoredFile

_ATTEMPTS = 3


class IcebergLakeMaintenance(LakeMaintenance):
    def __init__(self, connection: IcebergConnection, table: TableInfo) -> None:
        self._connection, self._table = connection, table
        self._committer = IcebergLakeCommitter(connection, table)

    def _load(self) -> Table:
        return self._connection.load_planned(self._table)

    def list_files(self, prefix: str | None = None) -> Iterable[StoredFile]:
        """By name, in both folders. Manifests and lists of ours are among them; all of them besides the metadata files
        that our own catalog wrote: a crash may leave one that never became the table's. Files of live snapshots are
        listed by their prefix only."""
        metadata = self._load().metadata
        mark = self._mark(metadata) if prefix is None else None
        name = (prefix or "").rpartition("/")[2] or OURS
        return [
            f
            for f in self._list(metadata)
            if (f.name.startswith(name) and (prefix is not None or not is_live(f.name)))
            or (mark is not None and carries(f.path, mark))
        ]

    def list_by_prefix(self, prefixes: Sequence[str]) -> dict[str, list[StoredFile]]:
        names = {prefix.rpartition("/")[2]: prefix for prefix in prefixes}
        by_prefix: dict[str, list[StoredFile]] = {prefix: [] for prefix in prefixes}
        lengths = {len(name) for name in names}
        for file in self._list(self._load().metadata) if prefixes else ():
            for prefix in {names[file.name[:n]] for n in lengths if file.name[:n] in names}:
                by_prefix[prefix].append(file)
        return by_prefix

    def _list(self, metadata: TableMetadata) -> list[StoredFile]:
        folders = {f(metadata.location, metadata.properties) for f in (data_folder, metadata_folder)}
        table = self._load()
        io = self._arrow_io(table)
        with lake_errors(str(self._table.path), "list files of"):
            own = sorted(check_path(table.io, folder) for folder in folders)
            return [file for folder in own for file in list_folder(io, folder)]

    def _mark(self, metadata: TableMetadata) -> str | None:
        """None when metadata files are not ours to delete: another catalog's, or kept for ever by the table's own
        property.
        """
        is_kept = metadata.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() != "true"
        mark: str | None = None if is_kept else getattr(self._connection.catalog, "mark", None)
        return mark

    def _arrow_io(self, table: Table) -> PyArrowFileIO:
        return PyArrowFileIO({**table.io.properties, **self._connection.options})

    def references(self) -> set[str]:
        table = self._load()
        with lake_errors(str(self._table.path), "read references of"):
            return {*Reachable(table.io).files(table.metadata), *self._metadata_files(table)}

    def _metadata_files(self, table: Table) -> set[str]:
        """Of those that `list_files` lists: the table's, and the older ones that its metadata still names."""
        mark = self._mark(table.metadata)
        known = (table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log))
        return set() if mark is None else {canonical(path) for path in known if carries(path, mark)}

    def fence(self, base: LakeBase, round_id: RoundId, epoch: int) -> LakeSnapshot:
        properties = CommitProperties.fence(base, round_id, epoch)
        committable = self._committer.prepare([], {}, base, properties, fence_step=1)
        return self._committer.commit(committable, Precondition.on(self._table.table_id, base))

    def take_over(self, offsets: Mapping[Bucket, int], at: SnapshotId | None = None) -> AdoptedRows:
        """Tried again when others commit meanwhile: what they added belongs to what was there, unless it was read."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._take_over(offsets, at)
            except CommitConflict as error:
                if error.lost or self._table.is_pk or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the loop returns or raises")

    def _take_over(self, offsets: Mapping[Bucket, int], at: SnapshotId | None) -> AdoptedRows:
        reader = IcebergLakeReader(self._connection, self._table)
        ground, adopted = reader.load_ground(), reader.adopted
        if adopted is not None and self._is_taken(ground, at):
            return adopted
        if self._table.is_pk and ground.base.head != at:
            raise self._moved(ground.base.head, at)
        adopted = self._count(ground)
        self._commit(ground.table, "note the rows of", "adoption", (_noting(adopted),))
        if adopted.snapshot_id is not None:
            self.tag(ADOPTED_TAG, adopted.snapshot_id)
        ground = reader.load_ground()
        if ground.base.head != adopted.snapshot_id:
            raise self._moved(ground.base.head, adopted.snapshot_id)
        properties = CommitProperties(
            round_id=new_round_id(), epoch=0, job="adoption", offsets=offsets, generation=ground.base.generation
        )
        with lake_errors(str(self._table.path), "take over"):
            committable = self._committer.build(ground, properties, FileChange())
        self._committer.commit(committable, Precondition.on(self._table.table_id, ground.base))
        return adopted

    def _is_taken(self, ground: CommitGround, at: SnapshotId | None) -> bool:
        """By an earlier call; of a PK table by one that read the same rows."""
        newest = ground.reconciled.newest
        if newest is None or not self._table.is_pk:
            return newest is not None
        return newest.parent_snapshot_id == (None if at is None else int(at))

    def _moved(self, head: SnapshotId | None, at: SnapshotId | None) -> CommitConflict:
        reason = f"main is at {head}, not at {at}"
        return CommitConflict(table=str(self._table.path), round_id="adoption", reason=reason)

    def _count(self, ground: CommitGround) -> AdoptedRows:
        """By a scan where keys are deleted."""
        head = ground.head
        buckets = self._table.descriptor.bucket_count if self._table.is_pk else None
        if head is None:
            return AdoptedRows(snapshot_id=None, sequence=0, rows=0, buckets=buckets)
        at = SnapshotId(str(head.snapshot_id))
        rows = count_live_rows(ground.table, head, ())
        if rows is None:
            scanned = IcebergLakeReader(self._connection, self._table, ground.table).scan(at, columns=[OFFSET])
            rows = sum(b.num_rows for b in scanned)
        return AdoptedRows(snapshot_id=at, sequence=head.sequence_number or 0, rows=rows, buckets=buckets)

    def delete(self, paths: Iterable[str]) -> int:
        table = self._load()
        io, freed = self._arrow_io(table), 0
        for path in paths:
            check_path(table.io, path)
            with lake_errors(str(self._table.path), "delete a file of"):
                fault_point("lake.before-delete", path=path)
                freed += delete_file(io, path)
                if path.endswith(".parquet"):
                    freed += delete_file(io, cache_path(path))
        return freed

    def probe(self) -> bool:
        table = self._load()
        metadata, io = table.metadata, self._arrow_io(table)
        folder = check_path(table.io, data_folder(metadata.location, metadata.properties))
        path = f"{folder}/{PROBE}{uuid.uuid4().hex}"
        with lake_errors(str(self._table.path), "write and delete a probe file of"):
            with io.new_output(path).create() as out:
                out.write(b"lakeward doctor --probe")
            delete_file(io, path)
        return True

    def expirable(self, now_ms: int) -> Sequence[ExpiringSnapshot]:
        metadata = self._load().metadata
        return expiring(metadata, plan_expiry(metadata, now_ms))

    def expire(self, snapshots: Sequence[SnapshotId]) -> int:
        """Tried again when a round commits meanwhile: what may go was decided by the caller,
        what stays is read anew.
        """
        for attempt in range(_ATTEMPTS):
            try:
                return self._expire({int(s) for s in snapshots})
            except CommitConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
        return 0

    def _expire(self, asked: set[int]) -> int:
        table = self._load()
        wanted = asked - {ref.snapshot_id for ref in table.metadata.refs.values()}
        gone = [s for s in table.metadata.snapshots if s.snapshot_id in wanted]
        if not gone:
            return 0
        leaving = expiring(table.metadata, [s.snapshot_id for s in gone])
        fault_point("lake.before-expire", table=str(self._table.path))
        removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [s.snapshot_id for s in gone]})
        self._commit(table, "expire snapshots of", "expiry", (removal,))
        fault_point("lake.after-expire", table=str(self._table.path))
        return self.delete_expired(leaving).bytes

    def delete_expired(self, snapshots: Sequence[ExpiringSnapshot]) -> Expired:
        """What goes is read first, what stays after it: a snapshot made meanwhile stands on one that stayed."""
        table = self._load()
        retained = {str(s.snapshot_id) for s in table.metadata.snapshots}
        gone = [s for s in snapshots if s.snapshot_id not in retained]
        if not gone:
            return Expired()
        with lake_errors(str(self._table.path), "read expired snapshots of"):
            victims = only_in(table.io, gone, table.metadata)
        return Expired(snapshots=tuple(s.snapshot_id for s in gone), bytes=self.delete(victims))

    def tag(self, name: str, snapshot_id: SnapshotId) -> None:
        """For ever, whatever the table's `history.expire.max-ref-age-ms` says."""
        at = {"snapshot-id": int(snapshot_id), "type": SnapshotRefType.TAG, "max-ref-age-ms": FOR_EVER_MS}
        self._name(name, int(snapshot_id), SetSnapshotRefUpdate.model_validate({"ref-name": name, **at}))

    def untag(self, name: str) -> None:
        self._name(name, None, RemoveSnapshotRefUpdate.model_validate({"ref-name": name}))

    def _name(self, name: str, snapshot_id: int | None, update: TableUpdate) -> None:
        """Tried again when somebody else commits meanwhile."""
        for attempt in range(_ATTEMPTS):
            table = self._load()
            before = table.metadata.refs.get(name)
            if (None if before is None else before.snapshot_id) == snapshot_id:
                return
            if snapshot_id is not None and table.metadata.snapshot_by_id(snapshot_id) is None:
                raise SnapshotGone.before_tag(table=str(self._table.path), snapshot=str(snapshot_id), tag=name)
            try:
                self._commit(table, "name a snapshot of", name, (update,))
            except CommitConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _commit(self, table: Table, what: str, by: str, updates: tuple[TableUpdate, ...]) -> None:
        """On exactly the references that were looked at: a tag or branch made meanwhile may need what would go."""
        refs = table.metadata.refs.items()
        asserted = [assert_ref(name, ref.snapshot_id) for name, ref in refs]
        if MAIN_BRANCH not in table.metadata.refs:
            asserted.append(assert_ref(MAIN_BRANCH, None))
        requirements: tuple[TableRequirement, ...] = (AssertTableUUID(uuid=table.metadata.table_uuid), *asserted)
        try:
            with lake_errors(str(self._table.path), what):
                self._connection.catalog.commit_table(table, requirements, updates)
        except (CommitFailedException, ValueError) as error:
            raise CommitConflict(table=str(self._table.path), round_id=by, reason=describe(error)) from error


def _noting(adopted: AdoptedRows) -> TableUpdate:
    return SetPropertiesUpdate.model_validate({"updates": spell_adopted(adopted)})
