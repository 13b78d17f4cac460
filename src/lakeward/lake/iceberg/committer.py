# SPDX-License-Identifier: Apache-2.0
"""One table's commits: results and replaced offsets become one snapshot on exactly the head and the tag that were
checked.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, UpdateMetrics, update_snapshot_summaries
from requests.exceptions import RequestException

from lakeward.errors import (
    CommitConflict,
    CommitUnknown,
    FaultInjected,
    LakeError,
    LakeTableGone,
    LakeUnavailable,
    ReplacedRowMissing,
)
from lakeward.lake.iceberg.commit.deletes import write_deletes
from lakeward.lake.iceberg.commit.equality import find_same_round, key_ids, merge_hits
from lakeward.lake.iceberg.commit.request import CommitRequest
from lakeward.lake.iceberg.commit.resolve import Candidate, Hit, OffsetLoader, Resolution, resolve
from lakeward.lake.iceberg.datafile.durable import sync_files
from lakeward.lake.iceberg.datafile.handle import WriteHandle
from lakeward.lake.iceberg.datafile.location import data_folder, metadata_folder, round_prefix
from lakeward.lake.iceberg.datafile.result import WriteResult
from lakeward.lake.iceberg.meta.ancestry import Reconciled
from lakeward.lake.iceberg.meta.connection import IcebergConnection
from lakeward.lake.iceberg.meta.diff import check_fits
from lakeward.lake.iceberg.meta.expiry import expiring, plan_expiry
from lakeward.lake.iceberg.meta.failures import database_errors, describe, lake_errors
from lakeward.lake.iceberg.meta.manifests import (
    ManifestTarget,
    added,
    load_manifests,
    merge_manifests,
    remember,
    write_manifest,
    write_manifest_list,
)
from lakeward.lake.iceberg.meta.partition import partition_record
from lakeward.lake.iceberg.meta.summary import (
    FOREIGN_REMOVED_KEY,
    INLINE_LIMIT,
    MISSING_KEY,
    OWN_OFFSETS_KEY,
    UNCOUNTED,
    fluss_body,
    fluss_partitions,
    summary_of,
)
from lakeward.lake.iceberg.reader import IcebergLakeReader
from lakeward.lake.iceberg.scan.files import FileIndex
from lakeward.model.bucket import Bucket
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId
from lakeward.model.offsets import OffsetMap
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.spi.lake import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    EPOCH_KEY,
    FENCE_KEY,
    GENERATION_KEY,
    JOB_KEY,
    OFFSETS_KEY,
    ROUND_KEY,
    ROWS_KEY,
    TABLE_ID_KEY,
    CommitProperties,
    Committable,
    LakeCommitter,
    LakeSnapshot,
    Precondition,
)

_REFUSED = (BadRequestError, UnauthorizedError, AuthorizationExpiredError, ForbiddenError, TooManyRequestsError)
"""Answers that say for certain that nothing was committed."""

_EXPIRE_LIMIT = 200
"""Snapshots that one commit takes out at most: a round adds one, so that a backlog of any size is soon gone."""


@dataclass(frozen=True)
class Ground:
    """A table as loaded once, reconciled: what one commit is built on."""

    table: Table
    reconciled: Reconciled

    @property
    def head(self) -> Snapshot | None:
        return self.table.metadata.current_snapshot()


class IcebergLakeCommitter(LakeCommitter):
    def __init__(self, connection: IcebergConnection, table: TableInfo) -> None:
        self._connection, self._table = connection, table
        self._reader = IcebergLakeReader(connection, table)
        self._prepared_on: Table | None = None
        self._folder: str | None = None

    def begin(self, round_id: RoundId) -> bytes:
        table = self._connection.load(self._table.path)
        check_fits(self._table, table.metadata)
        handle = WriteHandle.of(table)
        self._folder = handle.folder
        return handle.to_bytes()

    def prefix(self, round_id: RoundId) -> str:
        """The data folder's; manifests of the round have the same name's beginning in the metadata folder."""
        if self._folder is None:
            metadata = self._connection.load(self._table.path).metadata
            self._folder = data_folder(metadata.location, metadata.properties)
        return f"{self._folder}/{round_prefix(round_id)}"

    def prepare(
        self,
        results: Sequence[bytes],
        replaced: Mapping[Bucket, OffsetSet],
        base: LakeBase,
        properties: CommitProperties,
    ) -> Committable:
        ground = self.load_ground(base, properties.round_id, as_is=properties.generation > base.generation)
        check_fits(self._table, ground.table.metadata)
        parsed = [WriteResult.from_bytes(r) for r in results]
        with lake_errors(str(self._table.path), "prepare a commit of"):
            fault_point("lake.before-resolve", round_id=properties.round_id)
            files = self._data_files(ground.table, parsed)
            resolution = self._resolve(ground, files, replaced)
            by_key = self._key_files(ground.table, parsed)
            resolution.hits = merge_hits([*resolution.hits, *self._same_round(ground.table, parsed)])
            missing = self._explain_missing(ground, resolution)
            fault_point("lake.before-deletes", round_id=properties.round_id)
            metadata, prefix = ground.table.metadata, round_prefix(properties.round_id)
            folder = data_folder(metadata.location, metadata.properties)
            deletes = write_deletes(ground.table.io, folder, prefix, resolution.hits)
            extra = {MISSING_KEY: str(missing)} if missing else {}
            removed = ground.reconciled.foreign_removed()
            if removed is None or removed > missing:
                extra[FOREIGN_REMOVED_KEY] = UNCOUNTED if removed is None else str(removed - missing)
            rows_gone = None if by_key else resolution.count
            return self.build(
                ground, properties, [c.file for c in files], [*deletes, *by_key], rows_gone=rows_gone, extra=extra
            )

    def load_ground(self, base: LakeBase, round_id: str, *, as_is: bool = False) -> Ground:
        """The table now, if it is still what `base` says, head, tag and token. Raises `CommitConflict`.

        `as_is`: a resync, which starts a new generation, may build on a table that someone rolled back."""
        table = self._connection.load(self._table.path)
        reconciled = self._reader.reconcile(table, as_is=as_is)
        found = reconciled.base
        if found.head != base.head or found.token != base.token or found.offsets != base.offsets:
            lost = found.token != base.token or found.offsets != base.offsets or found.fence != base.fence
            raise self._conflict(round_id, f"main is at {found.head}, not at {base.head}", lost=lost)
        self._prepared_on = table
        return Ground(table, reconciled)

    def _data_files(self, table: Table, results: Sequence[WriteResult]) -> list[Candidate]:
        """New files as candidates too: a sub-split may replace rows of the one before it in the same round."""
        metadata = table.metadata
        spec, schema = metadata.spec(), metadata.schema()
        made = []
        for result in results:
            partition = partition_record(spec, schema, result.bucket)
            for file in result.files:
                load = lambda f=file: f.offset_set().values  # noqa: E731
                data_file = file.data_file(partition)
                made.append(
                    Candidate(data_file, spec.spec_id, result.bucket, file.first_offset, file.last_offset, load)
                )
        return made

    def _key_files(self, table: Table, results: Sequence[WriteResult]) -> list[tuple[int, DataFile]]:
        """Equality deletes, in the partition of the split that gave them."""
        metadata = table.metadata
        spec, schema = metadata.spec(), metadata.schema()
        made = []
        for result in results:
            partition = partition_record(spec, schema, result.bucket) if result.keys else None
            for file in result.keys:
                assert partition is not None
                made.append(
                    (spec.spec_id, file.data_file(partition, DataFileContent.EQUALITY_DELETES, key_ids(schema)))
                )
        return made

    def _same_round(self, table: Table, results: Sequence[WriteResult]) -> list[Hit]:
        """Rows that an earlier result of the bucket wrote and a later one's keys delete.
        Results are in offset order.
        """
        metadata = table.metadata
        spec, schema = metadata.spec(), metadata.schema()
        older: dict[Bucket, list[Hit]] = {}
        found: list[Hit] = []
        for result in results:
            before = older.setdefault(result.bucket, [])
            found += find_same_round(table.io, schema, result.keys, before)
            partition = partition_record(spec, schema, result.bucket)
            before += [Hit(f.data_file(partition), spec.spec_id, np.empty(0, np.int64)) for f in result.files]
        return found

    def _resolve(self, ground: Ground, files: list[Candidate], replaced: Mapping[Bucket, OffsetSet]) -> Resolution:
        wanted = {b: o for b, o in replaced.items() if o}
        if not wanted:
            return Resolution()
        table = ground.table
        index = FileIndex(table.metadata, self._table.descriptor.partition_keys)
        loader = OffsetLoader(table.io, index.offset_id)
        older = (
            loader.candidate(f)
            for f in index.files(table.io, load_manifests(table.io, ground.head))
            if f.bucket is None or (f.bucket in wanted and f.may_hold(*_span(wanted[f.bucket])))
        )
        return resolve(wanted, [*files, *older])

    def _explain_missing(self, ground: Ground, resolution: Resolution) -> int:
        """How many replaced rows are gone, where others' deletes explain it. Raises `ReplacedRowMissing` where not."""
        missing = sum(map(len, resolution.missing.values()))
        removed = ground.reconciled.foreign_removed()
        if missing and removed is not None and missing > removed:
            bucket, offsets = next(iter(resolution.missing.items()))
            raise ReplacedRowMissing(
                table=str(self._table.path), bucket=str(bucket), offset=int(offsets.values[0]), count=missing
            )
        return missing

    def build(
        self,
        ground: Ground,
        properties: CommitProperties,
        data: Sequence[DataFile],
        deletes: Sequence[tuple[int, DataFile]] = (),
        *,
        rows_gone: int | None = 0,
        fence_step: int = 0,
        extra: Mapping[str, str] | None = None,
    ) -> Committable:
        """Manifests, list and snapshot on this ground: everything that a commit needs but the catalog's yes."""
        table, base = ground.table, ground.reconciled.base
        metadata, head = table.metadata, ground.head
        self._check_forward(base, properties)
        rows = sum(f.record_count for f in data)
        target = ManifestTarget(
            io=table.io,
            folder=metadata_folder(metadata.location, metadata.properties),
            prefix=round_prefix(properties.round_id),
            schema=metadata.schema(),
            snapshot_id=_new_snapshot_id(metadata.snapshots),
        )
        known = 0 if ground.reconciled.newest is None else base.record_count
        ours = {
            **self._own_summary(base, properties, fence_step),
            **self._offsets(ground, target, base.offsets.overlaid(properties.offsets)),
            **({} if known is None or rows_gone is None else {ROWS_KEY: str(max(0, known + rows - rows_gone))}),
            **(extra or {}),
            **properties.extra,
        }
        if OFFSETS_KEY not in ours:  # Fluss's job stops at a snapshot of that name without a path
            del ours[COMMIT_USER_KEY]
        fault_point("lake.before-manifests", round_id=properties.round_id)
        manifests = self._manifests(target, ground, data, deletes)
        sequence = metadata.next_sequence_number()
        parent = None if head is None else head.snapshot_id
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": target.snapshot_id,
                "parent-snapshot-id": parent,
                "sequence-number": sequence,
                "timestamp-ms": max(self._connection.clock.now_ms(), metadata.last_updated_ms),
                "manifest-list": write_manifest_list(target, parent, sequence, manifests),
                "summary": _summary(data, [f for _, f in deletes], head, ours),
                "schema-id": metadata.current_schema_id,
            }
        )
        written = [*data, *(f for _, f in deletes)]
        self._sync(
            base, properties.round_id, [*(f.file_path for _, f in deletes), *target.made]
        )  # writers did it for theirs
        request = CommitRequest.on(
            metadata, table_id=self._table.table_id, round_id=properties.round_id, snapshot=snapshot
        )
        return Committable(
            base=base,
            payload=request.to_bytes(),
            rows=rows,
            deletes=sum(f.record_count for _, f in deletes) if rows_gone is None else rows_gone,
            files=len(written),
            bytes_written=sum(f.file_size_in_bytes for f in written),
            expirable=self._expirable(metadata),
            retries=_number(metadata.properties, "commit.retry.num-retries"),
            retry_s=None
            if (limit := _number(metadata.properties, "commit.retry.total-timeout-ms")) is None
            else limit / 1_000,
        )

    def _check_forward(self, base: LakeBase, properties: CommitProperties) -> None:
        """Offsets go back in a new generation alone."""
        back = [b for b, o in properties.offsets.items() if o < base.offsets.get(b, 0)]
        if back and properties.generation <= base.generation:
            reason = (
                f"bucket {back[0]} would go back from offset {base.offsets[back[0]]} to {properties.offsets[back[0]]}"
            )
            raise self._conflict(properties.round_id, reason, lost=True)

    def _sync(self, base: LakeBase, round_id: str, paths: Sequence[str]) -> None:
        """A file of this round that is gone was taken by orphan removal, which fences first: somebody else has the
        table.
        """
        try:
            sync_files(paths)
        except FileNotFoundError as error:
            now = self._reader.load_base()
            lost = (now.token, now.offsets, now.fence) != (base.token, base.offsets, base.fence)
            raise self._conflict(round_id, f"{error.filename} is gone: orphan removal took it", lost=lost) from error

    def _expirable(self, metadata: TableMetadata) -> tuple[ExpiringSnapshot, ...]:
        ids = plan_expiry(metadata, self._connection.clock.now_ms(), coming=1)
        return tuple(expiring(metadata, ids[:_EXPIRE_LIMIT]))

    def _own_summary(self, base: LakeBase, properties: CommitProperties, fence_step: int) -> dict[str, str]:
        return {
            COMMIT_USER_KEY: COMMIT_USER,
            ROUND_KEY: properties.round_id,
            EPOCH_KEY: str(properties.epoch),
            JOB_KEY: properties.job,
            TABLE_ID_KEY: self._table.table_id,
            FENCE_KEY: str(base.fence + fence_step),
            GENERATION_KEY: str(properties.generation),
        }

    def _offsets(self, ground: Ground, target: ManifestTarget, offsets: OffsetMap) -> dict[str, str]:
        """In the Fluss setting `fluss-offsets` is the path that Fluss gave for this commit (`CommitProperties.extra`);
        a commit that moves nothing copies the last one."""
        partitions = fluss_partitions(self._table)
        if partitions is None:
            return {OFFSETS_KEY: self._offsets_text(target, offsets.to_json())}
        newest = ground.reconciled.newest
        path = None if newest is None else summary_of(newest).get(OFFSETS_KEY)
        own = self._offsets_text(target, fluss_body(self._table.table_id, offsets, partitions))
        return {OWN_OFFSETS_KEY: own, **({} if path is None else {OFFSETS_KEY: path})}

    def _offsets_text(self, target: ManifestTarget, body: Mapping[str, Any]) -> str:
        text = json.dumps(body, separators=(",", ":"))
        if len(text) <= INLINE_LIMIT:
            return text
        path = target.new_path("offsets", "json")
        with target.io.new_output(path).create(overwrite=True) as out:
            out.write(text.encode())
        return path

    def _manifests(
        self, target: ManifestTarget, ground: Ground, data: Sequence[DataFile], deletes: Sequence[tuple[int, DataFile]]
    ) -> list[ManifestFile]:
        metadata = ground.table.metadata
        specs, sequence = metadata.specs(), metadata.next_sequence_number()
        groups = [(metadata.spec(), ManifestContent.DATA, list(data))] if data else []
        for spec_id in sorted({s for s, _ in deletes}):
            groups.append((specs[spec_id], ManifestContent.DELETES, [f for s, f in deletes if s == spec_id]))
        new = []
        for spec, content, files in groups:
            entries = added(files, target.snapshot_id)
            new.append(write_manifest(target, spec, content, entries))
            remember(new[-1], entries, sequence)
        # New manifests are merged by a later commit: until this one lands they have no sequence number.
        return new + merge_manifests(target, load_manifests(target.io, ground.head), specs)

    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        request = replace(CommitRequest.from_bytes(committable.payload), expire=tuple(map(int, committable.expire)))
        self._check(committable.base, precondition, request)
        table = self._prepared_on or self._connection.load(self._table.path)
        try:
            fault_point("lake.before-commit", round_id=request.round_id)
            self._send(table, request, precondition)
            fault_point("lake.after-commit", round_id=request.round_id)
        except FaultInjected as error:  # a test's lost request or lost answer
            raise CommitUnknown(table=str(self._table.path), round_id=request.round_id, reason=str(error)) from error
        return self._reader.summaries(table).snapshot(
            request.snapshot, self._reader.summaries(table).offsets(request.snapshot)
        )

    def _check(self, base: LakeBase, precondition: Precondition, request: CommitRequest) -> None:
        """The precondition, on the head that the request demands."""
        wrong = []
        if precondition.table_id != request.table_id:
            wrong.append(f"table id is {request.table_id}, not {precondition.table_id}")
        if precondition.fence is not None:
            if precondition.fence != base.fence:
                wrong.append(f"the fence is {base.fence}, not {precondition.fence}")
        elif precondition.token != base.token:
            wrong.append(f"the token is {base.token}, not {precondition.token}")
        wrong += [
            f"bucket {b} is at {base.offsets.get(b)}, not at {o}"
            for b, o in precondition.starts.items()
            if base.offsets.get(b) != o
        ]
        if wrong:
            raise self._conflict(request.round_id, "; ".join(wrong), lost=True)

    def _send(self, table: Table, request: CommitRequest, precondition: Precondition) -> None:
        catalog = self._connection.catalog
        unknown: tuple[type[Exception], ...] = (RESTError, RequestException, *database_errors())
        try:
            response = catalog.commit_table(table, request.requirements, request.updates)
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise LakeTableGone(table=str(self._table.path)) from error
        except (CommitFailedException, ValueError) as error:
            # ValueError: another branch took the sequence number; the request can never land any more.
            raise self._explain_conflict(request, precondition, describe(error)) from error
        except _REFUSED as error:
            raise LakeUnavailable(
                lake="iceberg", what=f"commit to {self._table.path}", reason=describe(error)
            ) from error
        except unknown as error:
            raise CommitUnknown(
                table=str(self._table.path), round_id=request.round_id, reason=describe(error)
            ) from error
        except OSError as error:
            raise LakeUnavailable(
                lake="iceberg", what=f"commit to {self._table.path}", reason=describe(error)
            ) from error
        if not self._connection.removes_old_metadata(catalog):
            catalog._delete_old_metadata(table.io, table.metadata, response.metadata)

    def _explain_conflict(self, request: CommitRequest, precondition: Precondition, reason: str) -> CommitConflict:
        """Did a round of ours win, or did somebody else's commit come between?"""
        lost = False
        try:
            base = self._reader.load_base()
            lost = base.token != precondition.token if precondition.fence is None else base.fence != precondition.fence
            lost = lost or any(base.offsets.get(b) != o for b, o in precondition.starts.items())
        except LakeTableGone as error:
            raise error
        except LakeError as error:
            reason = f"{reason}; {error}"
        return self._conflict(request.round_id, reason, lost=lost)

    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        return self._reader.find_round(round_id)

    def _conflict(self, round_id: str, reason: str, *, lost: bool) -> CommitConflict:
        return CommitConflict(table=str(self._table.path), round_id=round_id, reason=reason, lost=lost)


def _summary(
    data: Sequence[DataFile], deletes: Sequence[DataFile], head: Snapshot | None, ours: Mapping[str, str]
) -> Summary:
    metrics = UpdateMetrics()
    for file in (*data, *deletes):
        metrics.add_file(file)
    operation = Operation.APPEND if not deletes else Operation.OVERWRITE if data else Operation.DELETE
    previous = None if head is None else head.summary
    return update_snapshot_summaries(Summary(operation, **metrics.to_dict(), **ours), previous)


def _number(properties: Mapping[str, str], key: str) -> int | None:
    """A whole number that the table has been given; None for none, or for something else."""
    text = properties.get(key, "")
    return int(text) if text.isdigit() else None


def _new_snapshot_id(taken: Sequence[Snapshot]) -> int:
    used = {s.snapshot_id for s in taken}
    while True:
        made = random.SystemRandom().getrandbits(62) + 1
        if made not in used:
            return made


def _span(offsets: OffsetSet) -> tuple[int, int]:
    return int(offsets.values[0]), int(offsets.values[-1])
