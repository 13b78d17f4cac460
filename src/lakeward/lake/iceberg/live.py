# SPDX-License-Identifier: Apache-2.0
"""Live snapshots: the commit of a round of the tail, prepared on the head and never sent to a catalog. An answer of the
live catalog names it as the newest snapshot of main.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from lakeward.errors import SnapshotGone
from lakeward.lake.core.committer import CoreCommitter
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.commit.request import CommitRequest
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.files import open_table
from lakeward.lake.iceberg.log import IcebergSnapshotLog
from lakeward.lake.iceberg.meta.location import metadata_folder, round_prefix
from lakeward.lake.iceberg.meta.summary import walk
from lakeward.lake.iceberg.meta.version import find_next_row_id, metadata_json
from lakeward.model import Bucket, OffsetSet, RoundId, SnapshotId, TableInfo
from lakeward.spi import TAG, CommitProperties

LIVE_JOB = "live"
"""What the summary of a live snapshot names as its job."""


@dataclass(frozen=True, kw_only=True)
class LiveMetadata:
    """The answer to a load: metadata whose main is a live snapshot, and a location by which clients distinguish it from
    another. No file exists there, except for a table without a tail."""

    snapshot: Snapshot | None
    metadata: TableMetadata
    location: str

    @cached_property
    def body(self) -> str:
        """The metadata as JSON, encoded once for all clients that load it."""
        return metadata_json(self.metadata)


@dataclass(frozen=True, kw_only=True)
class PreparedLive:
    """A live snapshot, the table with it as its head, and the size of data and delete files written for it."""

    snapshot: Snapshot
    ground: IcebergGround
    bytes_written: int


class LiveCommitter(CoreCommitter[IcebergGround]):
    """Prepares the live snapshots of one table on a head of the lake. Writes files, changes no catalog."""

    _log: IcebergSnapshotLog

    def __init__(self, connection: IcebergConnection, table: TableInfo, lake: IcebergGround) -> None:
        super().__init__(open_table(connection, IcebergSnapshotLog(connection, table, is_live=True), table))
        self._lake = lake

    def prepare_live(
        self,
        ground: IcebergGround,
        live_id: RoundId,
        results: Sequence[bytes],
        replaced: Mapping[Bucket, OffsetSet],
        offsets: Mapping[Bucket, int],
        notes: Mapping[str, str],
    ) -> PreparedLive:
        """Builds the ground with these results and without the replaced rows; `ground` is the lake's head, or a live
        snapshot on it. `notes` go into the summary. The snapshot's parent is the lake's head in either case, as no
        client knows the live snapshots between. Raises as `prepare`."""
        base = ground.base
        properties = CommitProperties(
            round_id=live_id,
            epoch=int(base.epoch),
            job=LIVE_JOB,
            offsets=offsets,
            generation=base.generation,
            extra=notes,
        )
        committable = self.prepare(results, replaced, base, properties)
        head = None if self._lake.head is None else self._lake.head.snapshot_id
        snapshot = CommitRequest.from_bytes(committable.payload).snapshot
        snapshot = snapshot.model_copy(update={"parent_snapshot_id": head})
        table = _with_metadata(self._lake.table, _with_snapshots(self._lake.table.metadata, [snapshot]))
        above = self._log.ground(table)
        return PreparedLive(snapshot=snapshot, ground=above, bytes_written=committable.bytes_written)


def load_ground(connection: IcebergConnection, table: TableInfo, ends: Mapping[Bucket, int]) -> IcebergGround:
    """Loads the table at its newest snapshot without a row above these ends: its head, unless a round that froze its
    ranges later has landed since. Raises as `LakeReader.load_base`, and `SnapshotGone` if that snapshot has expired."""
    log = IcebergSnapshotLog(connection, table)
    ground = log.load()
    chain = walk(ground.table.metadata).chain[1:]
    for older in chain if _is_above(ground, ends) else ():
        ground = _ground_at(log, ground.table, older)
        if not _is_above(ground, ends):
            break
    if _is_above(ground, ends):
        raise SnapshotGone(table=str(table.path), snapshot="of this moment", advice="load the table again")
    return ground


def _is_above(ground: IcebergGround, ends: Mapping[Bucket, int]) -> bool:
    return any(offset > ends.get(bucket, offset) for bucket, offset in ground.base.offsets.items())


def _ground_at(log: IcebergSnapshotLog, loaded: Table, snapshot: Snapshot) -> IcebergGround:
    main = _main(loaded.metadata, snapshot)
    refs = {**{n: r for n, r in loaded.metadata.refs.items() if n != TAG}, MAIN_BRANCH: main}
    metadata = loaded.metadata.model_copy(update={"current_snapshot_id": snapshot.snapshot_id, "refs": refs})
    return log.ground(_with_metadata(loaded, metadata))


def _with_metadata(loaded: Table, metadata: TableMetadata) -> Table:
    return Table(loaded.name(), metadata, loaded.metadata_location, loaded.io, loaded.catalog)


def unchanged(ground: IcebergGround, properties: Mapping[str, str]) -> LiveMetadata:
    """Returns the lake's own metadata, for a table without a tail."""
    metadata = ground.table.metadata
    shown = metadata.model_copy(update={"properties": {**metadata.properties, **properties}})
    return LiveMetadata(snapshot=ground.head, metadata=shown, location=ground.table.metadata_location)


def compose(
    base: TableMetadata, snapshots: Sequence[Snapshot], live_id: RoundId, properties: Mapping[str, str]
) -> LiveMetadata:
    """`snapshots`: live ones, oldest first; the last one becomes main's. The others stay so that a client that loaded
    one finds it again."""
    metadata = _with_snapshots(base, snapshots)
    metadata = metadata.model_copy(update={"properties": {**base.properties, **properties}})
    newest = metadata.snapshots[-1]
    location = f"{metadata_folder(base.location, base.properties)}/{round_prefix(live_id)}{newest.snapshot_id}"
    return LiveMetadata(snapshot=newest, metadata=metadata, location=f"{location}.metadata.json")


def _with_snapshots(base: TableMetadata, snapshots: Sequence[Snapshot]) -> TableMetadata:
    """Adds the snapshots; each is a millisecond younger than the one before."""
    first_ms = base.last_updated_ms + 1
    dated = [s.model_copy(update={"timestamp_ms": first_ms + i}) for i, s in enumerate(snapshots)]
    newest = dated[-1]
    changes = {
        "snapshots": [*base.snapshots, *dated],
        "current_snapshot_id": newest.snapshot_id,
        "last_sequence_number": max(s.sequence_number or 0 for s in dated),
        "last_updated_ms": newest.timestamp_ms,
        "refs": {**base.refs, MAIN_BRANCH: _main(base, newest)},
        "snapshot_log": [*base.snapshot_log, *map(_logged, dated)],
    }
    next_row_id = find_next_row_id(base)
    if next_row_id is not None:
        changes["next_row_id"] = max(next_row_id, *((s.first_row_id or 0) + (s.added_rows or 0) for s in dated))
    return base.model_copy(update=changes)


def at_snapshot(table: Table, snapshot_id: SnapshotId | None, name: str) -> LiveMetadata:
    """Returns a table whose main is an older snapshot, or has none. Raises `SnapshotGone`."""
    metadata = table.metadata
    snapshot = None if snapshot_id is None else metadata.snapshot_by_id(int(snapshot_id))
    if snapshot_id is not None and snapshot is None:
        advice = "it has expired; ask the server's operator"
        raise SnapshotGone(table=".".join(table.name()), snapshot=str(snapshot_id), advice=advice)
    log_entries = (
        [] if snapshot is None else [e for e in metadata.snapshot_log if e.timestamp_ms <= snapshot.timestamp_ms]
    )
    refs = {n: r for n, r in metadata.refs.items() if n != MAIN_BRANCH}
    changes: dict[str, object] = {
        "current_snapshot_id": None if snapshot is None else snapshot.snapshot_id,
        "refs": refs if snapshot is None else {**refs, MAIN_BRANCH: _main(metadata, snapshot)},
        "snapshot_log": log_entries,
    }
    location = f"{metadata_folder(metadata.location, metadata.properties)}/{name}-{snapshot_id}.metadata.json"
    return LiveMetadata(snapshot=snapshot, metadata=metadata.model_copy(update=changes), location=location)


def _main(base: TableMetadata, newest: Snapshot) -> SnapshotRef:
    main = base.refs.get(MAIN_BRANCH)
    if main is None:
        return SnapshotRef.model_validate({"snapshot-id": newest.snapshot_id, "type": SnapshotRefType.BRANCH})
    return main.model_copy(update={"snapshot_id": newest.snapshot_id})


def _logged(snapshot: Snapshot) -> SnapshotLogEntry:
    entry = {"snapshot-id": snapshot.snapshot_id, "timestamp-ms": snapshot.timestamp_ms}
    return SnapshotLogEntry.model_validate(entry)
