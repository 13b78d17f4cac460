# SPDX-License-Identifier: Apache-2.0
"""File changes of a commit in an Iceberg table: resolves a round or a rewrite on the head and writes its delete
files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from lakeward.errors import ReplacedRowMissing
from lakeward.lake.core.change import ChangeKind, Changes, RoundWork, WholeGroup
from lakeward.lake.core.foreign import check_foreign
from lakeward.lake.iceberg.commit.change import IcebergChange, NewFile
from lakeward.lake.iceberg.commit.deletes import delete_rows, find_stale
from lakeward.lake.iceberg.commit.foreignrows import find_foreign_hits, may_insert
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.commit.keyindex import find_replaced
from lakeward.lake.iceberg.commit.replaced import find_whole, plan_replacement
from lakeward.lake.iceberg.commit.resolve import (
    Candidate,
    Hit,
    Resolution,
    data_candidates,
    key_files,
    merge_hits,
    resolve,
    same_round_hits,
)
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.datafile.offsetcache import OffsetLoader
from lakeward.lake.iceberg.datafile.result import WriteResult
from lakeward.lake.iceberg.log import IcebergSnapshotLog
from lakeward.lake.iceberg.meta.diff import check_fits
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.location import round_prefix
from lakeward.lake.iceberg.meta.manifests import load_manifests
from lakeward.lake.iceberg.meta.types import is_clean
from lakeward.lake.iceberg.scan.files import FileIndex
from lakeward.model import Bucket, OffsetSet, RoundId, TableInfo, fault_point
from lakeward.spi import DeleteEncoding, Renewal, RewriteResult, is_of_fluss


class IcebergChanges(Changes[IcebergGround, IcebergChange]):
    def __init__(self, connection: IcebergConnection, info: TableInfo, log: IcebergSnapshotLog) -> None:
        self._connection, self._info, self._log, self._where = connection, info, log, str(info.path)

    def plan_round(self, ground: IcebergGround, work: RoundWork) -> IcebergChange:
        if not work.is_fence:
            check_fits(self._info, ground.table.metadata)
        parsed, round_id = [WriteResult.from_bytes(r) for r in work.results], work.properties.round_id
        with lake_errors(self._where, "prepare a commit of"):
            fault_point("lake.before-resolve", round_id=round_id)
            files = data_candidates(ground.table, parsed)
            resolution = self._resolve(ground, files, work.replaced)
            by_key, replaced_rows = self._by_key(ground, parsed)
            foreign = self._foreign_rows(ground, work.renewal, is_resync=work.is_resync)
            renewed = self._resolve(ground, [], work.renewed).hits
            hits = [*resolution.hits, *renewed, *same_round_hits(ground.table, parsed), *replaced_rows, *foreign]
            stale = find_stale(ground, self._info, work.base.offsets, work.properties.offsets)
            resolution.hits = merge_hits([h for h in hits if h.file.file_path not in stale.paths])
            missing = self._explain_missing(ground, resolution)
            fault_point("lake.before-deletes", round_id=round_id)
            deletes = delete_rows(ground, round_prefix(round_id), resolution.hits)
        return IcebergChange.of(
            data=[NewFile(c.spec_id, c.file) for c in files],
            delete_files=[*deletes.files, *by_key],
            drop=deletes.drop | stale.keys,
            deletes=deletes.rows + sum(n.file.record_count for n in by_key),
            rows_gone=None if by_key else deletes.rows + stale.rows,
            missing=missing,
        )

    def find_whole(self, ground: IcebergGround, results: Sequence[RewriteResult]) -> Sequence[WholeGroup]:
        check_fits(self._info, ground.table.metadata)
        with lake_errors(self._where, "prepare a rewrite of"):
            if self._foreign_rows(ground, None, is_resync=True):
                return []
            return [WholeGroup(r) for r in find_whole(ground, self._info.descriptor.partition_keys, results)]

    def plan_rewrite(self, ground: IcebergGround, groups: Sequence[WholeGroup], round_id: RoundId) -> IcebergChange:
        results = [g.result for g in groups]
        with lake_errors(self._where, "prepare a rewrite of"):
            plan = plan_replacement(ground, self._info.descriptor.partition_keys, results)
            fault_point("lake.before-deletes", round_id=round_id)
            deletes = delete_rows(ground, round_prefix(round_id), [*plan.hits, *plan.merged])
        dropped = sum(r.dropped_rows for r in results)
        return IcebergChange.of(
            kind=ChangeKind.DROP if dropped else ChangeKind.REWRITE,
            data=plan.data,
            delete_files=deletes.files,
            drop=deletes.drop | plan.drop,
            deletes=sum(len(h.positions) for h in plan.hits),
            rows_gone=sum(n.file.record_count for n in plan.data) + dropped,
        )

    def _resolve(
        self, ground: IcebergGround, files: Sequence[Candidate], replaced: Mapping[Bucket, OffsetSet]
    ) -> Resolution:
        unresolved = {b: o for b, o in replaced.items() if o}
        if not unresolved:
            return Resolution()
        table = ground.table
        index = FileIndex(table.metadata, self._info.descriptor.partition_keys)
        loader = OffsetLoader(table.io, index.offset_id)
        older = index.files_holding(table.io, load_manifests(table.io, ground.head), unresolved)
        return resolve(unresolved, [*files, *(Candidate.of(f, loader) for f in older)])

    def _by_key(self, ground: IcebergGround, results: Sequence[WriteResult]) -> tuple[list[NewFile], list[Hit]]:
        """Deletes rows by key: as equality deletes, or as the positions of the rows. The key files are not needed
        afterwards."""
        if self._connection.deletes is DeleteEncoding.EQUALITY:
            return key_files(ground.table, results), []
        keys = [file.path for result in results for file in result.keys]
        self._log.spent = [partial(ground.table.io.delete, path) for path in keys]
        return [], find_replaced(ground, self._info.descriptor.partition_keys, results)

    def _foreign_rows(self, ground: IcebergGround, renewal: Renewal | None, *, is_resync: bool) -> list[Hit]:
        """Finds foreign rows to delete, which no changelog has: their keys would occur twice. Raises `ForeignRowsFound`
        if the table's option refuses them, or if they cannot be told from our own; a resync, which compares, removes
        them."""
        if not self._info.is_pk:
            return []
        if is_of_fluss(self._info.descriptor) and is_clean(ground.table.metadata.schema()):
            return []  # the Flink job appends as well
        hits, copies = find_foreign_hits(ground, self._info.descriptor.partition_keys, renewal)
        if hits:
            check_foreign(
                self._info,
                [str(s.snapshot_id) for s in ground.reconciled.foreign if may_insert(s)],
                sum(len(h.positions) for h in hits),
                hits[0].file.file_path,
                is_resync=is_resync,
                is_ambiguous=copies > 0,
            )
        return hits

    def _explain_missing(self, ground: IcebergGround, resolution: Resolution) -> int:
        """Counts replaced rows that are missing because another engine deleted them. Raises `ReplacedRowMissing` if
        that does not explain it."""
        missing = sum(map(len, resolution.missing.values()))
        removed = ground.reconciled.foreign_removed()
        if missing and removed is not None and missing > removed:
            bucket, offsets = next(iter(resolution.missing.items()))
            raise ReplacedRowMissing(
                table=self._where, bucket=str(bucket), offset=int(offsets.values[0]), count=missing
            )
        return missing
