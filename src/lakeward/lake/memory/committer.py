# SPDX-License-Identifier: Apache-2.0
"""Commits of one memory table: resolve replaced offsets to positions, then one compare-and-swap."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence, Set
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from lakeward.errors import (
    CommitConflict,
    CommitUnknown,
    FaultInjected,
    ForeignRowsFound,
    InvalidRequest,
    ReplacedRowMissing,
)
from lakeward.lake.conflict import describe_conflict
from lakeward.lake.memory.expiry import plan_expiry
from lakeward.lake.memory.foreignrows import find_foreign_rows
from lakeward.lake.memory.reconcile import ancestors, describe, load_base
from lakeward.lake.memory.rewrite import RewrittenRows
from lakeward.lake.memory.rows import count_live, deletes_for, find_positions, live_mask
from lakeward.lake.memory.table import DataFile, MemoryLake, MemoryTable, PositionDeletes, Refs, Snapshot
from lakeward.lake.memory.writer import HANDLE_KIND, RESULT_KIND
from lakeward.model.bucket import Bucket
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, TableId
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.model.versioned import pack, unpack
from lakeward.spi.capabilities import DeleteEncoding
from lakeward.spi.commit import CommitProperties, Committable, Precondition, Renewal
from lakeward.spi.foreignrows import removes_foreign_rows
from lakeward.spi.lake import LakeCommitter
from lakeward.spi.lakefile import LakeSnapshot
from lakeward.spi.rewrite import PreparedRewrite, RewriteResult, rows_after
from lakeward.spi.snapshotkeys import OFFSETS_KEY, ROWS_KEY, TABLE_ID_KEY, encode_all_keys, is_of

PAYLOAD_KIND, VERSION = "memory-committable", 1


class MemoryLakeCommitter(LakeCommitter):
    def __init__(
        self,
        lake: MemoryLake,
        table: TableInfo,
        encodings: Set[DeleteEncoding] = frozenset({DeleteEncoding.POSITIONS}),
    ) -> None:
        self._lake, self._info, self._encodings = lake, table, encodings
        lake.table(table.path)

    def begin(self, round_id: RoundId, base: LakeBase | None = None) -> bytes:
        table = self._table()
        body = {
            "uuid": table.uuid,
            "prefix": self.prefix(round_id),
            "columns": [c.name for c in table.columns],
            "primary_key": list(table.primary_key),
        }
        return pack(HANDLE_KIND, VERSION, body)

    def prefix(self, round_id: RoundId) -> str:
        return f"{self._table().location}/data/{round_id}-"

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
        if any(replaced.values()) and DeleteEncoding.POSITIONS not in self._encodings:
            raise InvalidRequest(what=f"replaced rows of {self._info.path}", reason="this lake merges by key")
        if back := properties.breach(base):
            raise CommitConflict(table=str(self._info.path), round_id=properties.round_id, reason=back, lost=True)
        with self._lake.lock:
            table = self._table()
            head = None if table.head is None else table.snapshots[table.head]
            if base.head != (head.id if head else None):
                on_base = Precondition.on(self._info.table_id, base)
                raise self._conflict(properties.round_id, "main moved since the base was read", on_base)
            bodies = [unpack(RESULT_KIND, VERSION, data)[1] for data in results]
            added = [path for body in bodies for path in body["paths"]]
            is_resync = properties.generation > base.generation
            foreign = self._foreign_rows(table, head, is_resync, renewal)
            renewed = {} if renewal is None else renewal.offsets
            deletes = self._resolve(table, head, added, replaced, renewed, foreign, properties.round_id)
            payload = {
                "refs": [table.uuid, table.head, table.tag],
                "round": properties.round_id,
                "add": [*added, *(d.path for d in deletes)],
                "summary": encode_all_keys(self._info.table_id, base, properties, fence_step=fence_step),
            }
            expirable = tuple(plan_expiry(table, self._lake.clock.now_ms(), coming=1))
        return Committable(
            base=base,
            payload=pack(PAYLOAD_KIND, VERSION, payload),
            rows=sum(body["rows"] for body in bodies),
            deletes=sum(len(d.positions) for d in deletes),
            files=len(payload["add"]),
            bytes_written=sum(body["bytes"] for body in bodies) + sum(d.size_bytes for d in deletes),
            expirable=expirable,
        )

    def prepare_rewrite(
        self,
        results: Sequence[RewriteResult],
        base: LakeBase,
        round_id: RoundId,
        extra: Mapping[str, str] | None = None,
    ) -> PreparedRewrite:
        with self._lake.lock:
            table = self._table()
            head = None if table.head is None else table.snapshots[table.head]
            if head is None or base.head != head.id:
                on_base = Precondition.on(self._info.table_id, base)
                raise self._conflict(round_id, "main moved since the base was read", on_base)
            whole = [r for r in results if all(head.data.get(f.path) == f.sequence for f in r.group.files)]
            if self._foreign_rows(table, head, True, None):
                whole = []  # the next round looks for them since our newest commit
            left_out = tuple(r.group.index for r in results if r not in whole)
            if not whole or base.token is None:
                return PreparedRewrite(committable=None, left_out=left_out)
            new = {r.group.index: RewrittenRows.from_bytes(r.payload) for r in whole}
            late = [self._carry_over(table, head, rewritten, round_id) for rewritten in new.values()]
            deletes = [d for late_deletes in late for d in late_deletes]
            own = CommitProperties.rewrite(base, extra)
            payload = {
                "refs": [table.uuid, table.head, table.tag],
                "round": round_id,
                "add": [*(n.path for n in new.values() if n.path), *(d.path for d in deletes)],
                "drop": [f.path for r in whole for f in r.group.files],
                "operation": "delete" if all(r.group.is_dropped for r in whole) else "replace",
                "sequences": {n.path: r.group.sequence for r in whole if (n := new[r.group.index]).path},
                "summary": encode_all_keys(
                    self._info.table_id, base, own, rows=rows_after(whole, base.lake_rows), rewrite_id=round_id
                ),
            }
        carried = sum(len(d.positions) for d in deletes)
        committable = Committable(
            base=base,
            payload=pack(PAYLOAD_KIND, VERSION, payload),
            rows=sum(r.rows for r in whole),
            deletes=carried,
            files=len(payload["add"]),
            bytes_written=sum(r.bytes_written for r in whole) + sum(d.size_bytes for d in deletes),
        )
        return PreparedRewrite(committable=committable, left_out=left_out, carried=carried)

    def _carry_over(
        self, table: MemoryTable, head: Snapshot, rewritten: RewrittenRows, round_id: RoundId
    ) -> list[PositionDeletes]:
        """Positions deleted on the inputs since the plan, as positions in the new file."""
        carried = []
        for ranks in rewritten.ranks:
            on_input = [
                d.positions.values
                for _, d in deletes_for(table, head, table.data_file(ranks.path))
                if isinstance(d, PositionDeletes)
            ]
            carried.append(ranks.follow(OffsetSet(np.concatenate(on_input)).values) if on_input else ranks.ranks[:0])
        positions = OffsetSet(np.concatenate(carried)) if carried else OffsetSet()
        if rewritten.path is None or not positions:
            return []
        return [self._store_deletes(table, table.data_file(rewritten.path), positions, round_id)]

    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        _, body, _ = unpack(PAYLOAD_KIND, VERSION, committable.payload)
        round_id = RoundId(body["round"])
        if broken := precondition.breach(committable.base, TableId(body["summary"][TABLE_ID_KEY])):
            raise CommitConflict(table=str(self._info.path), round_id=round_id, reason=broken, lost=True)
        try:
            fault_point("lake.before-commit", round_id=round_id)
            landed = self._land(body, {int(s) for s in committable.expire})
            fault_point("lake.after-commit", round_id=round_id)
        except FaultInjected as error:
            raise CommitUnknown(table=str(self._info.path), round_id=round_id, reason=str(error)) from error
        if landed is None:
            raise self._conflict(round_id, "main or the tag moved since the base was read", precondition)
        return landed

    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        with self._lake.lock:
            table = self._table()
            ours = (s for _, s in sorted(table.snapshots.items()) if is_of(s.summary, round_id))
            snapshot = next(ours, None)
            return None if snapshot is None else describe(table, snapshot)

    def _table(self) -> MemoryTable:
        return self._lake.table(self._info.path)

    def _land(self, body: Mapping[str, Any], expire: set[int]) -> LakeSnapshot | None:
        table = self._table()
        table_uuid, head, tag = body["refs"]
        with self._lake.lock:
            refs, add = Refs(uuid=table_uuid, head=head, tag=tag), frozenset(body["add"])
            drop, sequences = frozenset(body.get("drop", ())), body.get("sequences", {})
            counted = {} if drop else {ROWS_KEY: str(self._rows_after(table, add))}
            landed = self._lake.commit(
                table,
                refs,
                operation=body.get("operation", "replace") if drop else _operation(table, add),
                summary={**body["summary"], **counted},
                add=add,
                drop=drop,
                sequences=sequences,
            )
            if landed is None:
                return None
            for number in expire - {table.head, table.tag}:
                table.snapshots.pop(number, None)
            return describe(table, landed)

    def _rows_after(self, table: MemoryTable, add: frozenset[str]) -> int:
        before = 0 if table.head is None else count_live(table, table.snapshots[table.head])
        files = [table.files[path] for path in add if path in table.files]
        plus = sum(int(f.rows.num_rows) for f in files if isinstance(f, DataFile))
        return before + plus - sum(len(f.positions) for f in files if isinstance(f, PositionDeletes))

    def _conflict(self, round_id: RoundId, reason: str, precondition: Precondition) -> CommitConflict:
        def load() -> LakeBase:
            return load_base(self._table(), self._info.table_id)

        return describe_conflict(str(self._info.path), round_id, reason, precondition, load)

    def _resolve(
        self,
        table: MemoryTable,
        head: Snapshot | None,
        added: Sequence[str],
        replaced: Mapping[Bucket, OffsetSet],
        renewed: Mapping[Bucket, OffsetSet],
        foreign: Mapping[str, OffsetSet],
        round_id: RoundId,
    ) -> list[PositionDeletes]:
        """Replaced offsets as positions in files of the head or of this round, renewed ones in files of the head alone,
        and others' rows; their delete files are in storage."""
        older = list(head.data) if head else []
        gone = {path: [positions] for path, positions in foreign.items()}
        for bucket, wanted in sorted(replaced.items()):
            missing = wanted
            for path in [*older, *added]:
                hits, positions = _find_in(table, path, bucket, wanted)
                missing = missing.minus(hits)
                gone.setdefault(path, []).append(positions)
            if missing and not _foreign_deletes(table):
                first = int(missing.values[0])
                raise ReplacedRowMissing(table=str(table.path), bucket=str(bucket), offset=first, count=len(missing))
        for (bucket, wanted), path in product(sorted(renewed.items()), older):
            gone.setdefault(path, []).append(_find_in(table, path, bucket, wanted)[1])
        delete_files: list[PositionDeletes] = []
        for path, parts in gone.items():
            if positions := reduce(OffsetSet.union, parts):
                delete_files += self._delete_file(table, head, table.data_file(path), positions, round_id)
        return delete_files

    def _foreign_rows(
        self, table: MemoryTable, head: Snapshot | None, is_resync: bool, renewal: Renewal | None
    ) -> Mapping[str, OffsetSet]:
        """As Iceberg's: rows that go because no changelog has them. Raises `ForeignRowsFound` where the table's option
        says so."""
        foreign, hits, copies = find_foreign_rows(table, head, renewal) if self._info.is_pk else ([], {}, 0)
        if not hits or is_resync or (removes_foreign_rows(self._info) and not copies):
            return hits
        raise ForeignRowsFound(
            table=str(self._info.path),
            snapshots=", ".join(s.id for s in foreign),
            rows=sum(map(len, hits.values())),
            file=next(iter(hits)),
        )

    def _delete_file(
        self, table: MemoryTable, head: Snapshot | None, file: DataFile, positions: OffsetSet, round_id: RoundId
    ) -> list[PositionDeletes]:
        """At most one file; rows that a foreign engine has deleted already are left out."""
        if head is not None and file.path in head.data:
            gone = OffsetSet((~live_mask(table, head, file)).nonzero()[0])
            positions = positions.minus(gone)
        return [self._store_deletes(table, file, positions, round_id)] if positions else []

    def _store_deletes(
        self, table: MemoryTable, file: DataFile, positions: OffsetSet, round_id: RoundId
    ) -> PositionDeletes:
        path = f"{self.prefix(round_id)}{uuid.uuid4().hex}.positions"
        deletes = PositionDeletes(
            path=path,
            bucket=file.bucket,
            data_path=file.path,
            positions=positions,
            modified_at_ms=self._lake.clock.now_ms(),
        )
        table.files[path] = deletes
        return deletes


def _find_in(table: MemoryTable, path: str, bucket: Bucket, wanted: OffsetSet) -> tuple[OffsetSet, OffsetSet]:
    file = table.files.get(path)
    if not isinstance(file, DataFile) or file.bucket != bucket:
        return OffsetSet(), OffsetSet()
    return find_positions(file, wanted)


def _operation(table: MemoryTable, add: frozenset[str]) -> str:
    return "append" if all(isinstance(table.files.get(path), DataFile) for path in add) else "overwrite"


def _foreign_deletes(table: MemoryTable) -> bool:
    """Has another engine deleted rows in main's history? Then a replaced row may be gone for a good reason."""
    chain, _ = ancestors(table, table.head)
    return any(OFFSETS_KEY not in s.summary and s.operation == "delete" for s in chain)
