# SPDX-License-Identifier: Apache-2.0
"""Builds the commit of a change: manifests, their list, the snapshot; everything but the catalog's yes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.iceberg.commit.change import FileChange
from lakeward.lake.iceberg.commit.ground import CommitGround
from lakeward.lake.iceberg.commit.liverows import count_live_rows, others_changed_rows
from lakeward.lake.iceberg.commit.newmanifests import write_manifests
from lakeward.lake.iceberg.commit.newoffsets import write_offsets
from lakeward.lake.iceberg.commit.request import CommitRequest
from lakeward.lake.iceberg.meta.ancestry import Reconciled
from lakeward.lake.iceberg.meta.durable import sync_files
from lakeward.lake.iceberg.meta.expiry import expiring, plan_expiry
from lakeward.lake.iceberg.meta.location import metadata_folder, round_prefix
from lakeward.lake.iceberg.meta.manifests import (
    ManifestTarget,
    dropped_columns,
    unnumbered_rows,
    write_manifest_list,
)
from lakeward.lake.iceberg.meta.summary import FOREIGN_REMOVED_KEY, MISSING_KEY, UNCOUNTED
from lakeward.lake.iceberg.meta.version import find_next_row_id, table_version
from lakeward.model.clock import Clock
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId
from lakeward.model.table import TableInfo
from lakeward.spi.commit import CommitProperties, Committable
from lakeward.spi.snapshotkeys import COMMIT_USER_KEY, OFFSETS_KEY, encode_keys

_EXPIRE_LIMIT = 200
"""Snapshots that one commit takes out at most: a round adds one, so that a backlog of any size is soon gone."""


LIVE_IDS = 2**62
"""Ids of rounds' snapshots are at most this number, those of live snapshots, which no catalog ever names, above it."""


class SnapshotBuilder:
    """Builds the snapshots of one table's commits. `is_live`: a snapshot that only an answer of the live catalog names:
    its files need not survive a power cut, it removes no other snapshot, and its time is that of the head: engines that
    choose a snapshot by the time at which they began would pass over one from now."""

    def __init__(self, table: TableInfo, clock: Clock, *, is_live: bool = False) -> None:
        self._table, self._clock, self._is_live = table, clock, is_live

    def build(self, ground: CommitGround, properties: CommitProperties, change: FileChange) -> Committable:
        """The files written for it are durable. Raises `FileNotFoundError` when somebody took away a file that it
        wrote.
        """
        table, base = ground.table, ground.reconciled.base
        metadata, head, round_id = table.metadata, ground.head, change.rewrite_id or properties.round_id
        target = ManifestTarget(
            io=table.io,
            folder=metadata_folder(metadata.location, metadata.properties),
            prefix=round_prefix(round_id),
            schema=metadata.schema(),
            snapshot_id=_new_snapshot_id(metadata.snapshots) + (LIVE_IDS if self._is_live else 0),
            version=table_version(metadata),
            dropped=dropped_columns(metadata.schema(), metadata.schemas),
        )
        known = self._rows_before(ground)
        rows = None if known is None or change.rows_gone is None else max(0, known + change.rows - change.rows_gone)
        ours = {
            **encode_keys(
                self._table.table_id,
                base,
                properties,
                fence_step=change.fence_step,
                rows=rows,
                rewrite_id=change.rewrite_id,
            ),
            **write_offsets(ground, target, self._table, base.offsets.overlaid(properties.offsets)),
            **_foreign_removed(ground.reconciled, change.missing),
            **properties.extra,
        }
        if OFFSETS_KEY not in ours:  # Fluss's job stops at a snapshot of that name without a path
            del ours[COMMIT_USER_KEY]
        fault_point("lake.before-manifests", round_id=properties.round_id)
        new = write_manifests(target, ground, change)
        sequence = metadata.next_sequence_number()
        parent = None if head is None else head.snapshot_id
        next_row_id = find_next_row_id(metadata)
        lineage = (
            {} if next_row_id is None else {"first-row-id": next_row_id, "added-rows": unnumbered_rows(new.manifests)}
        )
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": target.snapshot_id,
                "parent-snapshot-id": parent,
                "sequence-number": sequence,
                "timestamp-ms": max(0 if self._is_live else self._clock.now_ms(), metadata.last_updated_ms),
                "manifest-list": write_manifest_list(target, parent, sequence, new.manifests, next_row_id),
                "summary": change.summarize(new.dropped, head, ours),
                "schema-id": metadata.current_schema_id,
                **lineage,
            }
        )
        if not self._is_live:
            sync_files([*(n.file.file_path for n in change.deletes), *target.paths])  # writers did it for data files
        return self._committable(ground, round_id, change, snapshot)

    def _rows_before(self, ground: CommitGround) -> int | None:
        """Counted where others changed rows, Fluss's Flink job among them, whose snapshots do not say how many live."""
        known = 0 if ground.reconciled.newest is None else ground.reconciled.base.lake_rows
        if known is not None and not others_changed_rows(ground):
            return known
        return count_live_rows(ground.table, ground.head, self._table.descriptor.partition_keys)

    def _committable(
        self, ground: CommitGround, round_id: RoundId, change: FileChange, snapshot: Snapshot
    ) -> Committable:
        metadata = ground.table.metadata
        request = CommitRequest.on(metadata, table_id=self._table.table_id, round_id=round_id, snapshot=snapshot)
        limit_ms = _number(metadata.properties, "commit.retry.total-timeout-ms")
        expirable = [] if self._is_live else plan_expiry(metadata, self._clock.now_ms(), coming=1)[:_EXPIRE_LIMIT]
        return Committable(
            base=ground.reconciled.base,
            payload=request.to_bytes(),
            rows=change.rows,
            files=len(change.files),
            bytes_written=sum({f.file_path: f.file_size_in_bytes for f in change.files}.values()),
            expirable=tuple(expiring(metadata, expirable)),
            retries=_number(metadata.properties, "commit.retry.num-retries"),
            retry_s=None if limit_ms is None else limit_ms / 1_000,
        )


def _foreign_removed(reconciled: Reconciled, missing: int) -> dict[str, str]:
    """Every commit of ours passes on how many rows others deleted that no round has missed yet."""
    removed = reconciled.foreign_removed()
    keys = {MISSING_KEY: str(missing)} if missing else {}
    if removed is None or removed > missing:
        keys[FOREIGN_REMOVED_KEY] = UNCOUNTED if removed is None else str(removed - missing)
    return keys


def _number(properties: Mapping[str, str], key: str) -> int | None:
    """A whole number that the table has been given; None for none, or for something else."""
    text = properties.get(key, "")
    return int(text) if text.isdigit() else None


def _new_snapshot_id(taken: Sequence[Snapshot]) -> int:
    used = {s.snapshot_id for s in taken}
    while True:
        number = random.SystemRandom().getrandbits(62) or 1
        if number not in used:
            return number
