# SPDX-License-Identifier: Apache-2.0
"""An Iceberg table's snapshots, as the commit protocol uses them: a catalog moves main and our tag in one request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lakeward.errors import CommitConflict
from lakeward.lake.core.failures import explain
from lakeward.lake.core.history import HistoryLimit, LogSnapshot
from lakeward.lake.core.log import HeadMoved, SnapshotLog
from lakeward.lake.core.reconcile import describe_conflict, load_base
from lakeward.lake.iceberg.commit.change import IcebergChange
from lakeward.lake.iceberg.commit.ground import IcebergGround, count_live_rows
from lakeward.lake.iceberg.commit.newsnapshot import SnapshotBuilder, offset_keys
from lakeward.lake.iceberg.commit.request import CONFLICTS, FOR_EVER_MS, CommitRequest, assert_ref, send, send_leased
from lakeward.lake.iceberg.connect.connection import COORDINATOR_ID, IcebergConnection
from lakeward.lake.iceberg.history import IcebergHistory
from lakeward.lake.iceberg.meta.expiry import Reachable, expiring, find_superseded, only_in
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.location import canonical, carries
from lakeward.lake.iceberg.meta.mapping import DEFAULTS
from lakeward.lake.iceberg.meta.summary import foreign_removed_keys, totals_of
from lakeward.model import ExpiringSnapshot, LakeBase, RoundId, SnapshotId, TableInfo
from lakeward.protocol.heartbeat import LeasedAnswer, LeasedCommit
from lakeward.spi import COMMIT_USER_KEY, OFFSETS_KEY, ROUND_KEY, ROWS_KEY, CommitProperties, Precondition

_ATTEMPTS = 3


class IcebergSnapshotLog(IcebergHistory, SnapshotLog[IcebergGround, IcebergChange, CommitRequest]):
    """Commits and expires snapshots. `loaded`: all answers come from this table, and the catalog is not asked again.
    `is_live`: for snapshots that only an answer of the live catalog names, see `SnapshotBuilder`."""

    def __init__(
        self, connection: IcebergConnection, info: TableInfo, loaded: Table | None = None, *, is_live: bool = False
    ) -> None:
        super().__init__(connection, info, loaded)
        self._is_live = is_live
        self._builder = SnapshotBuilder(connection.clock, is_live=is_live)
        self.spent: list[Callable[[], None]] = []
        """Delete the key files that the prepared commit resolved to positions, once it has landed."""

    def own_keys(
        self, ground: IcebergGround, base: LakeBase, properties: CommitProperties, change: IcebergChange
    ) -> Mapping[str, str | None]:
        """Returns the row count if other engines changed rows; the number of rows that they deleted and no round has
        missed yet; for Fluss, the offsets file that Fluss wrote. Fluss's job stops at a snapshot of that name without a
        path."""
        with lake_errors(self.table, "prepare a commit of"):
            rows = self._rows_after(ground, base, change)
        keys: dict[str, str | None] = {
            ROWS_KEY: None if rows is None else str(rows),
            **offset_keys(self._info, ground, base.offsets.overlaid(properties.offsets)),
            **foreign_removed_keys(ground.reconciled.foreign_removed(), change.missing),
            **properties.extra,
        }
        return keys if keys.get(OFFSETS_KEY, "") is not None else {**keys, COMMIT_USER_KEY: None}

    def _rows_after(self, ground: IcebergGround, base: LakeBase, change: IcebergChange) -> int | None:
        """Counts rows if other engines changed some. Snapshots of Fluss's Flink job do not record how many are live."""
        before = 0 if ground.reconciled.newest is None else base.lake_rows
        if before is None or ground.others_changed_rows:
            before = count_live_rows(ground.table, ground.head, self._info.descriptor.partition_keys)
        return None if before is None or change.rows_gone is None else max(0, before + change.rows - change.rows_gone)

    def encode(self, ground: IcebergGround, round_id: RoundId, keys: Mapping[str, str], change: IcebergChange) -> bytes:
        """Writes the manifests. Raises `CommitConflict` if orphan removal deleted a file of this round: it fences
        first, so the table has another holder by then."""
        with lake_errors(self.table, "prepare a commit of"):
            try:
                snapshot = self._builder.build(ground, round_id, keys, change)
            except FileNotFoundError as error:
                on_base = Precondition.on(self._info.table_id, load_base(self, ground, self._info.table_id, as_is=True))
                reason = f"{error.filename} does not exist: orphan removal deleted it"
                now = lambda: load_base(self, self.load(), self._info.table_id)  # noqa: E731
                raise describe_conflict(self.table, RoundId(keys[ROUND_KEY]), reason, on_base, now) from error
        metadata = ground.table.metadata
        request = CommitRequest.on(metadata, table_id=self._info.table_id, round_id=round_id, snapshot=snapshot)
        return request.to_bytes()

    def retries(self, ground: IcebergGround) -> tuple[int | None, float | None]:
        properties = ground.table.metadata.properties
        limit_ms = _number(properties, "commit.retry.total-timeout-ms")
        return _number(properties, "commit.retry.num-retries"), None if limit_ms is None else limit_ms / 1_000

    def parse(self, payload: bytes) -> CommitRequest:
        return CommitRequest.from_bytes(payload)

    def append(self, request: CommitRequest, base: LakeBase, expire: Collection[SnapshotId]) -> LogSnapshot:
        ground = self._ground_of(base)
        try:
            metadata = self.send(ground.table, replace(request, expire=tuple(map(int, expire))))
        except CONFLICTS as error:
            raise HeadMoved(explain(error)) from error
        return replace(self._log_snapshot(request.snapshot), totals=totals_of(metadata))

    @property
    def coordinator_id(self) -> str | None:
        return self._connection.catalog.properties.get(COORDINATOR_ID) or None

    def append_leased(
        self, request: CommitRequest, base: LakeBase, leased: LeasedCommit
    ) -> tuple[LogSnapshot, LeasedAnswer | None]:
        ground = self._ground_of(base)
        try:
            totals, answer = send_leased(self._connection, ground.table, request, leased)
        except CONFLICTS as error:
            raise HeadMoved(explain(error)) from error
        return replace(self._log_snapshot(request.snapshot), totals=totals), answer

    def _ground_of(self, base: LakeBase) -> IcebergGround:
        """Returns the ground that the base was read from, so that the commit is described without another load."""
        if not isinstance(base.loaded, IcebergGround):
            return self.load()
        self._summaries = self._summaries or self.summaries(base.loaded.table)
        return base.loaded

    def send(self, table: Table, request: CommitRequest) -> TableMetadata:
        return send(self._connection, table, request)

    def settle(self, request: CommitRequest) -> None:
        spent, self.spent = self.spent, []
        for delete in spent:
            with suppress(OSError):  # a remaining file is an orphan
                delete()

    def limit(self, ground: IcebergGround) -> HistoryLimit:
        return HistoryLimit.of({**DEFAULTS, **ground.table.metadata.properties}, prefix="")

    def superseded(self, ground: IcebergGround, kept: int) -> Iterator[tuple[SnapshotId, int]]:
        return iter(() if self._is_live else find_superseded(ground.table.metadata, kept))

    def protected(self, ground: IcebergGround) -> set[SnapshotId]:
        return {SnapshotId(str(ref.snapshot_id)) for ref in ground.table.metadata.refs.values()}

    def expiring(self, ground: IcebergGround, snapshot_id: SnapshotId) -> ExpiringSnapshot:
        return expiring(ground.table.metadata, int(snapshot_id))

    def forget(self, ground: IcebergGround, snapshots: Collection[SnapshotId]) -> bool:
        if not snapshots:
            return True
        removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [int(s) for s in snapshots]})
        try:
            self.update(ground.table, "expire snapshots of", removal)
        except HeadMoved:
            return False
        return True

    def references(self, ground: IcebergGround) -> set[str]:
        with lake_errors(self.table, "read references of"):
            files = Reachable(ground.table.io).files(ground.table.metadata)
        return {*files, *self._metadata_files(ground.table)}

    def _metadata_files(self, table: Table) -> set[str]:
        """Returns the metadata files among those that `IcebergFiles.list_files` lists: the table's current one, and the
        older ones that its metadata still names."""
        mark = self.mark(table.metadata)
        known = (table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log))
        return set() if mark is None else {canonical(path) for path in known if carries(path, mark)}

    def mark(self, metadata: TableMetadata) -> str | None:
        """None if metadata files must not be deleted: another catalog's, or retained for ever by the table's own
        property."""
        is_kept = metadata.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() != "true"
        mark: str | None = None if is_kept else getattr(self._connection.catalog, "mark", None)
        return mark

    def only_in(self, ground: IcebergGround, expired: Sequence[ExpiringSnapshot]) -> list[str]:
        """Reads removed snapshots first and remaining ones afterwards: a snapshot made meanwhile is based on a
        remaining one."""
        with lake_errors(self.table, "read expired snapshots of"):
            return only_in(ground.table.io, expired, ground.table.metadata)

    def tag(self, name: str, snapshot_id: SnapshotId) -> None:
        """Tags a snapshot for ever, whatever the table's `history.expire.max-ref-age-ms` is."""
        at = {"snapshot-id": int(snapshot_id), "type": SnapshotRefType.TAG, "max-ref-age-ms": FOR_EVER_MS}
        self._name(name, snapshot_id, SetSnapshotRefUpdate.model_validate({"ref-name": name, **at}))

    def untag(self, name: str) -> None:
        self._name(name, None, RemoveSnapshotRefUpdate.model_validate({"ref-name": name}))

    def _name(self, name: str, snapshot_id: SnapshotId | None, update: TableUpdate) -> None:
        """Tries again when another commit lands meanwhile."""
        for attempt in range(_ATTEMPTS):
            ground = self.load()
            before = ground.table.metadata.refs.get(name)
            if (None if before is None else str(before.snapshot_id)) == snapshot_id:
                return
            if snapshot_id is not None:
                self.find_snapshot(ground, snapshot_id)
            try:
                self.update(ground.table, "name a snapshot of", update)
            except HeadMoved as error:
                if attempt == _ATTEMPTS - 1:
                    raise CommitConflict(table=self.table, round_id=name, reason=str(error)) from error
            else:
                return

    def update(self, table: Table, what: str, *updates: TableUpdate) -> None:
        """Commits on exactly the table's references: a tag or branch created meanwhile may need a removed snapshot.
        Raises `HeadMoved`."""
        refs = table.metadata.refs
        asserted = [assert_ref(name, ref.snapshot_id) for name, ref in refs.items()]
        asserted += [] if MAIN_BRANCH in refs else [assert_ref(MAIN_BRANCH, None)]
        requirements: tuple[TableRequirement, ...] = (AssertTableUUID(uuid=table.metadata.table_uuid), *asserted)
        try:
            with lake_errors(self.table, what):
                self._connection.catalog.commit_table(table, requirements, updates)
        except (CommitFailedException, ValueError) as error:
            raise HeadMoved(explain(error)) from error


def _number(properties: Mapping[str, str], key: str) -> int | None:
    """Returns a property as a whole number; None if it is missing or not a number."""
    text = properties.get(key, "")
    return int(text) if text.isdigit() else None
