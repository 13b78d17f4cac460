# SPDX-License-Identifier: Apache-2.0
"""One table's commits: results and replaced offsets become one snapshot on exactly the head and the tag that were
checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation

from lakeward.errors import (
    CommitConflict,
    CommitUnknown,
    FaultInjected,
    ForeignRowsFound,
    LakeError,
    LakeTableGone,
    ReplacedRowMissing,
)
from lakeward.lake.iceberg.commit.change import FileChange, NewFile
from lakeward.lake.iceberg.commit.equality import merge_hits
from lakeward.lake.iceberg.commit.foreignrows import find_foreign_rows, may_insert
from lakeward.lake.iceberg.commit.ground import CommitGround
from lakeward.lake.iceberg.commit.keyindex import find_replaced
from lakeward.lake.iceberg.commit.newfiles import data_candidates, key_files, same_round_hits
from lakeward.lake.iceberg.commit.newsnapshot import SnapshotBuilder
from lakeward.lake.iceberg.commit.replaced import plan_replacement
from lakeward.lake.iceberg.commit.request import CommitRequest
from lakeward.lake.iceberg.commit.resolve import Candidate, Hit, Resolution, resolve
from lakeward.lake.iceberg.commit.send import CONFLICTS, send
from lakeward.lake.iceberg.commit.stalefiles import find_stale
from lakeward.lake.iceberg.commit.vectors import delete_rows
from lakeward.lake.iceberg.datafile.handle import WriteHandle
from lakeward.lake.iceberg.datafile.offsetcache import OffsetLoader
from lakeward.lake.iceberg.datafile.result import WriteResult
from lakeward.lake.iceberg.meta.connection import IcebergConnection
from lakeward.lake.iceberg.meta.diff import check_fits
from lakeward.lake.iceberg.meta.failures import describe, lake_errors
from lakeward.lake.iceberg.meta.layout import is_clean
from lakeward.lake.iceberg.meta.location import data_folder, round_prefix
from lakeward.lake.iceberg.meta.manifests import load_manifests
from lakeward.lake.iceberg.reader import IcebergLakeReader, totals_of
from lakeward.lake.iceberg.scan.files import FileIndex
from lakeward.model.bucket import Bucket
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, TableId
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.spi.capabilities import DeleteEncoding
from lakeward.spi.commit import CommitProperties, Committable, Precondition, Renewal
from lakeward.spi.flussoffsets import is_of_fluss
from lakeward.spi.foreignrows import removes_foreign_rows
from lakeward.spi.lake.committer import LakeCommitter
from lakeward.spi.lakefile import LakeSnapshot
from lakeward.spi.rewrite import PreparedRewrite, RewriteResult


class IcebergLakeCommitter(LakeCommitter):
    def __init__(self, connection: IcebergConnection, table: TableInfo) -> None:
        self._connection, self._table = connection, table
        self._reader = IcebergLakeReader(connection, table)
        self._builder = SnapshotBuilder(table, connection.clock)
        self._prepared_on: Table | None = None
        self._folder: str | None = None
        self._spent: list[str] = []

    def begin(self, round_id: RoundId, base: LakeBase | None = None) -> bytes:
        loaded = None if base is None else base.loaded
        table = loaded.table if isinstance(loaded, CommitGround) else self._connection.load_planned(self._table)
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
        renewal: Renewal | None = None,
        *,
        fence_step: int = 0,
    ) -> Committable:
        is_resync = properties.generation > base.generation
        ground = self.load_ground(base, properties.round_id, as_is=is_resync)
        if not fence_step:
            check_fits(self._table, ground.table.metadata)
        parsed = [WriteResult.from_bytes(r) for r in results]
        with lake_errors(str(self._table.path), "prepare a commit of"):
            fault_point("lake.before-resolve", round_id=properties.round_id)
            files = data_candidates(ground.table, parsed)
            resolution = self._resolve(ground, files, replaced)
            by_key, replaced_rows = self._by_key(ground, parsed)
            foreign = self._foreign_rows(ground, is_resync, renewal)
            renewed = self._resolve(ground, [], {} if renewal is None else renewal.offsets).hits
            hits = [*resolution.hits, *renewed, *same_round_hits(ground.table, parsed), *replaced_rows, *foreign]
            stale = find_stale(ground, self._table, properties.offsets)
            resolution.hits = merge_hits([h for h in hits if h.file.file_path not in stale.paths])
            missing = self._explain_missing(ground, resolution)
            fault_point("lake.before-deletes", round_id=properties.round_id)
            deletes = delete_rows(ground, round_prefix(properties.round_id), resolution.hits)
            change = FileChange(
                data=tuple(NewFile(c.spec_id, c.file) for c in files),
                deletes=(*deletes.files, *by_key),
                drop=deletes.drop | stale.keys,
                rows_gone=None if by_key else deletes.rows + stale.rows,
                missing=missing,
                fence_step=fence_step,
            )
            committable = self.build(ground, properties, change)
            return replace(committable, deletes=deletes.rows + sum(n.file.record_count for n in by_key))

    def prepare_rewrite(
        self,
        results: Sequence[RewriteResult],
        base: LakeBase,
        round_id: RoundId,
        extra: Mapping[str, str] | None = None,
    ) -> PreparedRewrite:
        ground = self.load_ground(base, round_id)
        check_fits(self._table, ground.table.metadata)
        with lake_errors(str(self._table.path), "prepare a rewrite of"):
            plan = plan_replacement(ground, self._table.descriptor.partition_keys, results)
            left_out = tuple(plan.left_out)
            if self._foreign_rows(ground, True, None):  # the next round looks for them since our newest commit
                return PreparedRewrite(committable=None, left_out=tuple(r.group.index for r in results))
            if base.token is None or not plan.groups:
                return PreparedRewrite(committable=None, left_out=left_out)
            fault_point("lake.before-deletes", round_id=round_id)
            deletes = delete_rows(ground, round_prefix(round_id), [*plan.hits, *plan.merged])
            dropped = sum(r.dropped_rows for r in results if r.group.index not in left_out)
            change = FileChange(
                data=tuple(plan.data),
                deletes=deletes.files,
                drop=deletes.drop | plan.drop,
                operation=Operation.DELETE if dropped else Operation.REPLACE,
                rows_gone=sum(n.file.record_count for n in plan.data) + dropped,
                rewrite_id=round_id,
            )
            committable = self.build(ground, CommitProperties.rewrite(base, extra), change)
        carried = sum(len(h.positions) for h in plan.hits)
        return PreparedRewrite(committable=replace(committable, deletes=carried), left_out=left_out, carried=carried)

    def load_ground(self, base: LakeBase, round_id: str, *, as_is: bool = False) -> CommitGround:
        """The table that `base` was read from; where it does not say, the table now, if it is still what `base` says,
        head, tag and token. Raises `CommitConflict`.

        `as_is`: a resync, which starts a new generation, may build on a table that someone rolled back."""
        if isinstance(base.loaded, CommitGround):
            self._prepared_on = base.loaded.table
            return base.loaded
        ground = self._reader.load_ground(as_is=as_is)
        loaded_base = ground.base
        broken = Precondition.on(self._table.table_id, base).breach(loaded_base)
        if loaded_base.head != base.head or broken:
            reason = f"main is at {loaded_base.head}, not at {base.head}"
            raise self._conflict(round_id, reason, lost=broken is not None)
        self._prepared_on = ground.table
        return ground

    def build(self, ground: CommitGround, properties: CommitProperties, change: FileChange) -> Committable:
        """The commit of any change on this ground. Raises `CommitConflict`."""
        base = ground.reconciled.base
        if back := properties.breach(base):
            raise self._conflict(properties.round_id, back, lost=True)
        try:
            return self._builder.build(ground, properties, change)
        except FileNotFoundError as error:
            # A file of this round that is gone was taken by orphan removal, which fences first: somebody else has the
            # table.
            broken = Precondition.on(self._table.table_id, base).breach(self._reader.load_base())
            reason = f"{error.filename} is gone: orphan removal took it"
            raise self._conflict(properties.round_id, reason, lost=broken is not None) from error

    def _resolve(
        self, ground: CommitGround, files: list[Candidate], replaced: Mapping[Bucket, OffsetSet]
    ) -> Resolution:
        wanted = {b: o for b, o in replaced.items() if o}
        if not wanted:
            return Resolution()
        table = ground.table
        index = FileIndex(table.metadata, self._table.descriptor.partition_keys)
        loader = OffsetLoader(table.io, index.offset_id)
        older = index.files_holding(table.io, load_manifests(table.io, ground.head), wanted)
        return resolve(wanted, [*files, *(Candidate.of(f, loader) for f in older)])

    def _by_key(self, ground: CommitGround, results: Sequence[WriteResult]) -> tuple[list[NewFile], list[Hit]]:
        """Rows that go by key: as equality deletes, or as the positions at which they lie. The files of keys have done
        their duty then."""
        if self._connection.deletes is DeleteEncoding.EQUALITY:
            return key_files(ground.table, results), []
        self._spent = [file.path for result in results for file in result.keys]
        return [], find_replaced(ground, self._table.descriptor.partition_keys, results)

    def _foreign_rows(self, ground: CommitGround, is_resync: bool, renewal: Renewal | None) -> list[Hit]:
        """Rows that go because no changelog has them: a key would be there twice. Raises `ForeignRowsFound` where the
        table's option says so, or nobody can tell which of two is ours; a resync, which compares, takes them out."""
        if not self._table.is_pk:
            return []
        if is_of_fluss(self._table.descriptor) and is_clean(ground.table.metadata.schema()):
            return []  # the Flink job appends as well
        hits, copies = find_foreign_rows(ground, self._table.descriptor.partition_keys, renewal)
        if not hits or is_resync or (removes_foreign_rows(self._table) and not copies):
            return hits
        snapshots = [str(s.snapshot_id) for s in ground.reconciled.foreign if may_insert(s)]
        raise ForeignRowsFound(
            table=str(self._table.path),
            snapshots=", ".join(snapshots),
            rows=sum(len(h.positions) for h in hits),
            file=hits[0].file.file_path,
        )

    def _explain_missing(self, ground: CommitGround, resolution: Resolution) -> int:
        """How many replaced rows are gone, where others' deletes explain it. Raises `ReplacedRowMissing` where not."""
        missing = sum(map(len, resolution.missing.values()))
        removed = ground.reconciled.foreign_removed()
        if missing and removed is not None and missing > removed:
            bucket, offsets = next(iter(resolution.missing.items()))
            raise ReplacedRowMissing(
                table=str(self._table.path), bucket=str(bucket), offset=int(offsets.values[0]), count=missing
            )
        return missing

    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        request = replace(CommitRequest.from_bytes(committable.payload), expire=tuple(map(int, committable.expire)))
        if broken := precondition.breach(committable.base, TableId(request.table_id)):
            raise self._conflict(request.round_id, broken, lost=True)
        table = self._prepared_on or self._connection.load_planned(self._table)
        try:
            fault_point("lake.before-commit", round_id=request.round_id)
            metadata = self._send(table, request, precondition)
            fault_point("lake.after-commit", round_id=request.round_id)
        except FaultInjected as error:  # a test's lost request or lost answer
            raise CommitUnknown(table=str(self._table.path), round_id=request.round_id, reason=str(error)) from error
        for path in self._spent:
            with suppress(OSError):  # left behind, it is an orphan
                table.io.delete(path)
        summaries = self._reader.summaries(table)
        return replace(
            summaries.snapshot(request.snapshot, summaries.offsets(request.snapshot)), totals=totals_of(metadata)
        )

    def _send(self, table: Table, request: CommitRequest, precondition: Precondition) -> TableMetadata:
        try:
            return send(self._connection, table, request)
        except CONFLICTS as error:
            raise self._explain_conflict(request, precondition, describe(error)) from error

    def _explain_conflict(self, request: CommitRequest, precondition: Precondition, reason: str) -> CommitConflict:
        """Did a round of ours win, or did somebody else's commit come between?"""
        lost = False
        try:
            lost = precondition.breach(self._reader.load_base()) is not None
        except LakeTableGone as error:
            raise error
        except LakeError as error:
            reason = f"{reason}; {error}"
        return self._conflict(request.round_id, reason, lost=lost)

    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        return self._reader.find_round(round_id)

    def _conflict(self, round_id: str, reason: str, *, lost: bool) -> CommitConflict:
        return CommitConflict(table=str(self._table.path), round_id=round_id, reason=reason, lost=lost)
