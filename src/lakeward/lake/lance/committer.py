# SPDX-License-Identifier: Apache-2.0
"""One Lance table's commits: resolve, deletion files, the version that the head must be followed by."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import lance
import numpy as np
from lance.fragment import FragmentMetadata

from lakeward.errors import (
    CommitConflict,
    CommitUnknown,
    FaultInjected,
    ForeignRowsFound,
    LakeUnavailable,
    ReplacedRowMissing,
    SnapshotGone,
)
from lakeward.lake.conflict import describe_conflict
from lakeward.lake.lance.datafile import round_prefix
from lakeward.lake.lance.deletions import write_deletions
from lakeward.lake.lance.expiry import plan_expiry
from lakeward.lake.lance.failures import lake_errors
from lakeward.lake.lance.foreignrows import find_foreign_rows
from lakeward.lake.lance.reconcile import LanceGround, describe, load_base
from lakeward.lake.lance.rewrite import LanceRewrittenGroup
from lakeward.lake.lance.rows import LanceRows
from lakeward.lake.lance.table import DATA, LanceTable, apply, fragments_of
from lakeward.lake.lance.versions import EXPIRED_KEY
from lakeward.lake.lance.writer import LanceWriteHandle, LanceWriteResult
from lakeward.lake.tablefiles import sync
from lakeward.model.bucket import Bucket
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, TableId
from lakeward.model.offsets import OffsetRange
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.model.versioned import pack, unpack
from lakeward.spi.commit import CommitProperties, Committable, Precondition, Renewal
from lakeward.spi.foreignrows import removes_foreign_rows
from lakeward.spi.lake import LakeCommitter
from lakeward.spi.lakefile import LakeSnapshot
from lakeward.spi.rewrite import PreparedRewrite, RewriteResult, rows_after
from lakeward.spi.snapshotkeys import REWRITE_KEY, TABLE_ID_KEY, TAG, encode_all_keys, is_of

_KIND, _VERSION = "lance-committable", 1
Deleted = dict[int, OffsetSet]
"""Positions per fragment, by its id."""


class LanceLakeCommitter(LakeCommitter):
    def __init__(self, table: LanceTable, info: TableInfo) -> None:
        self._table, self._info = table, info

    def begin(self, round_id: RoundId, base: LakeBase | None = None) -> bytes:
        return LanceWriteHandle.of(self._table.root, self._ground(base).dataset).to_bytes()

    def prefix(self, round_id: RoundId) -> str:
        return f"{self._table.root}/{DATA}/{round_prefix(round_id)}"

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
        round_id = properties.round_id
        if back := properties.breach(base):
            raise CommitConflict(table=self._table.name, round_id=round_id, reason=back, lost=True)
        ground = self._fresh(base, round_id)
        rows = self._rows(ground.dataset)
        new = [f for data in results for f in LanceWriteResult.from_bytes(data).fragments]
        gone = self._foreign(ground, rows, properties.generation > base.generation, renewal)
        fault_point("lake.before-resolve", round_id=round_id)
        renewed = {} if renewal is None else renewal.offsets
        new = self._with_ids(ground, new) if replaced or renewed or gone else new
        gone = self._resolve(ground, rows, new, replaced, renewed, gone)
        changed, deletes, deleted_bytes = self._delete(ground, rows, [*rows.fragments, *new], gone, round_id)
        added = sum(f.physical_rows for f in new)
        total = sum(f.num_rows for f in rows.fragments) + added - deletes
        keys = encode_all_keys(self._info.table_id, base, properties, fence_step=fence_step, rows=total)
        old_ids = {f.id for f in rows.fragments}
        updated = [f for i, f in changed.items() if i in old_ids]
        return Committable(
            base=base,
            payload=self._pack(ground, round_id, keys, updated=updated, new=[changed.get(f.id, f) for f in new]),
            rows=added,
            deletes=deletes,
            files=len(new) + len(changed),
            bytes_written=sum(f.files[0].file_size_bytes or 0 for f in new) + deleted_bytes,
            expirable=tuple(plan_expiry(self._table, ground, int(time.time() * 1000), coming=1)),
        )

    def prepare_rewrite(
        self,
        results: Sequence[RewriteResult],
        base: LakeBase,
        round_id: RoundId,
        extra: Mapping[str, str] | None = None,
    ) -> PreparedRewrite:
        ground = self._fresh(base, round_id)
        rows = self._rows(ground.dataset)
        live = {rows.path(f): f for f in rows.fragments}
        read = {r.group.index: LanceRewrittenGroup.from_bytes(r.payload) for r in results}
        emptied = {
            f.path: OffsetSet(np.arange(f.record_count))
            for r in results
            for f in r.group.files
            if f.path not in live and self._was_emptied(ground, f.path, read[r.group.index].version)
        }
        whole = [r for r in results if all(f.path in live or f.path in emptied for f in r.group.files)]
        if self._foreign(ground, rows, True, None):
            whole = []  # the next round looks for them since our newest commit
        left_out = tuple(r.group.index for r in results if r not in whole)
        if not whole or base.token is None:
            return PreparedRewrite(committable=None, left_out=left_out)
        groups = [read[r.group.index] for r in whole]
        new = self._with_ids(ground, [f for g in groups for f in g.fragments])
        late, at = Deleted(), 0
        for group in groups:
            own, at = new[at : at + len(group.fragments)], at + len(group.fragments)
            late.update(group.carry_over(own, lambda path: rows.deleted(live[path]) if path in live else emptied[path]))
        changed, carried, deleted_bytes = self._delete(ground, rows, new, late, round_id)
        keys = encode_all_keys(
            self._info.table_id,
            base,
            CommitProperties.rewrite(base, extra),
            rows=rows_after(whole, base.lake_rows),
            rewrite_id=round_id,
        )
        removed = [live[f.path].id for r in whole for f in r.group.files if f.path in live]
        committable = Committable(
            base=base,
            payload=self._pack(ground, round_id, keys, new=[changed.get(f.id, f) for f in new], removed=removed),
            rows=sum(r.rows for r in whole),
            deletes=carried,
            files=len(new) + len(changed),
            bytes_written=sum(r.bytes_written for r in whole) + deleted_bytes,
        )
        return PreparedRewrite(committable=committable, left_out=left_out, carried=carried)

    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        _, body, _ = unpack(_KIND, _VERSION, committable.payload)
        round_id, head = RoundId(body["round"]), int(body["head"])
        if broken := precondition.breach(committable.base, TableId(body["keys"][TABLE_ID_KEY])):
            raise CommitConflict(table=self._table.name, round_id=round_id, reason=broken, lost=True)
        kept = {head, *(int(v) for v in (committable.base.head,) if v)}
        expired = {*body["expired"], *(int(s) for s in committable.expire)} - kept
        said = {**body["keys"], EXPIRED_KEY: json.dumps(sorted(expired))}
        try:
            fault_point("lake.before-commit", round_id=round_id)
            landed = self._table.commit(head, _operation(body), said)
            fault_point("lake.after-commit", round_id=round_id)
        except SnapshotGone:
            landed = False
        except (FaultInjected, LakeUnavailable) as error:
            raise CommitUnknown(table=self._table.name, round_id=round_id, reason=str(error)) from error
        if not landed:
            raise self._conflict(round_id, f"version {head + 1} is there already", precondition)
        with suppress(LakeUnavailable, SnapshotGone, ValueError):  # then the next one sets it
            self._table.tag(TAG, head + 1)
        return describe(self._table.version(head + 1), self._table.name)

    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        own = (v for v in self._table.newest_first(self._table.versions()) if is_of(v.keys, round_id))
        version = min(own, key=lambda v: v.version, default=None)
        return None if version is None else describe(version, self._table.name)

    def _ground(self, base: LakeBase | None) -> LanceGround:
        loaded = None if base is None else base.loaded
        return loaded if isinstance(loaded, LanceGround) else LanceGround.load(self._table)

    def _fresh(self, base: LakeBase, round_id: RoundId) -> LanceGround:
        """The newest version, which may have other columns or properties than the base had."""
        ground = self._ground(base)
        if self._table.versions()[-1:] != (ground.version,):
            ground = LanceGround.load(self._table)
        if base.head != ground.head_id:
            on_base = Precondition.on(self._info.table_id, base)
            raise self._conflict(round_id, "the table moved on since the base was read", on_base)
        return ground

    def _conflict(self, round_id: RoundId, reason: str, precondition: Precondition) -> CommitConflict:
        def load() -> LakeBase:
            return load_base(self._table, self._info.table_id, LanceGround.load(self._table))

        return describe_conflict(self._table.name, round_id, reason, precondition, load)

    def _was_emptied(self, ground: LanceGround, path: str, since: int) -> bool:
        """Did a round delete all its rows? The library then takes the fragment out. If not, others moved them."""
        later = [v for v in ground.versions if v >= since]
        without = next((v for v in later if path not in self._table.paths(v)), None)
        if without is None or later[: without - since + 1] != list(range(since, without + 1)):
            return False
        keys = self._table.version(without).keys
        return bool(keys) and REWRITE_KEY not in keys

    def _pack(
        self,
        ground: LanceGround,
        round_id: RoundId,
        keys: Mapping[str, str],
        *,
        updated: Sequence[Any] = (),
        new: Sequence[Any] = (),
        removed: Sequence[int] = (),
    ) -> bytes:
        body = {
            "head": ground.version,
            "round": round_id,
            "keys": dict(keys),
            "updated": [json.dumps(f.to_json()) for f in updated],
            "new": [json.dumps(f.to_json()) for f in new],
            "removed": list(removed),
            "expired": sorted(ground.expired),
        }
        return pack(_KIND, _VERSION, body)

    def _rows(self, dataset: lance.LanceDataset) -> LanceRows:
        return LanceRows(self._table, dataset, self._info.descriptor.partition_keys)

    def _with_ids(self, ground: LanceGround, new: Sequence[Any]) -> list[Any]:
        """As the commit will number them, on this version and no other: names of deletion files say it."""
        if not new:
            return []
        with self._table.stage(ground.version) as staged:
            appended = apply(staged, ground.version, lance.LanceOperation.Append(list(new)))
            by_path = {f.files[0].path: f for f in fragments_of(appended)}
        return [by_path[f.files[0].path] for f in new]

    def _foreign(self, ground: LanceGround, rows: LanceRows, is_resync: bool, renewal: Renewal | None) -> Deleted:
        """Rows that go because no changelog has them. Raises `ForeignRowsFound` where the table's option says so."""
        if not self._info.is_pk or ground.own is None or ground.own == ground.head:
            return {}
        before = self._rows(self._table.open(ground.own.version))
        foreign, hits, copies = find_foreign_rows(self._table, ground, rows, before, renewal)
        if not hits or is_resync or (removes_foreign_rows(self._info) and not copies):
            return hits
        paths = {f.id: rows.path(f) for f in rows.fragments}
        raise ForeignRowsFound(
            table=self._table.name,
            snapshots=", ".join(v.snapshot_id for v in foreign),
            rows=sum(map(len, hits.values())),
            file=paths[next(iter(hits))],
        )

    def _resolve(
        self,
        ground: LanceGround,
        rows: LanceRows,
        new: Sequence[Any],
        replaced: Mapping[Bucket, OffsetSet],
        renewed: Mapping[Bucket, OffsetSet],
        gone: Mapping[int, OffsetSet],
    ) -> Deleted:
        """Positions per fragment: replaced offsets in fragments of the head or of this round, renewed ones in those of
        the head alone, and others' rows. Raises `ReplacedRowMissing`."""
        parts, missing = {i: [positions] for i, positions in gone.items()}, dict(replaced)
        both = {b: _both(replaced.get(b), renewed.get(b)) for b in {*replaced, *renewed}}
        own = self._rows(ground.dataset).among(new)
        for side, fragments, wanted in ((rows, rows.fragments, both), (own, new, replaced)):
            for fragment in fragments if wanted else ():
                facts = side.facts(fragment)
                near = wanted.values() if facts.bucket is None else [wanted.get(facts.bucket, OffsetSet())]
                if not any(_may_hold(facts.offsets, offsets) for offsets in near):
                    continue
                offsets = side.offsets(fragment)
                for bucket, places in side.places(fragment):
                    if bucket not in wanted:
                        continue
                    hits = places[wanted[bucket].mask(offsets[places])]
                    if len(hits):
                        parts.setdefault(fragment.id, []).append(OffsetSet(hits))
                        if bucket in missing:
                            missing[bucket] = missing[bucket].minus(OffsetSet(offsets[hits]))
        for bucket, left in sorted(missing.items()):
            if left and not self._others_deleted(ground):
                raise ReplacedRowMissing(
                    table=self._table.name, bucket=str(bucket), offset=int(left.values[0]), count=len(left)
                )
        return {i: reduce(OffsetSet.union, sets) for i, sets in parts.items()}

    def _others_deleted(self, ground: LanceGround) -> bool:
        """Has another engine deleted rows, as far as history tells? Then a replaced row may be gone for a reason."""
        return any(v.may_remove_rows and not v.keys for v in self._table.newest_first(ground.versions))

    def _delete(
        self, ground: LanceGround, rows: LanceRows, fragments: Sequence[Any], gone: Deleted, round_id: RoundId
    ) -> tuple[dict[int, Any], int, int]:
        """Fragments that lose rows, with the new deletion file, merged with the one that is there; the number of those
        rows; bytes written."""
        changed, count, size, newest = dict[int, Any](), 0, 0, ""
        for fragment in fragments:
            there = rows.deleted(fragment) if fragment.id in gone else OffsetSet()
            both = there.union(gone.get(fragment.id, OffsetSet()))
            if len(both) == len(there):
                continue
            if not changed:
                fault_point("lake.before-deletes", round_id=round_id)
            with lake_errors(self._table.name, "write deletions of"):
                deletion, written = write_deletions(
                    self._table.files, self._table.root, fragment.id, ground.version, round_id, both
                )
            facts = {**fragment.to_json(), "deletion_file": deletion.asdict()}
            changed[fragment.id] = FragmentMetadata.from_json(json.dumps(facts))
            count, size = count + len(both) - len(there), size + written
            newest = f"{self._table.root}/{deletion.path(fragment.id)}"
        with lake_errors(self._table.name, "write deletions of"):
            sync([newest] if changed else [])  # with the folder that names all of them
        return changed, count, size


def _operation(body: Mapping[str, Any]) -> lance.LanceOperation.BaseOperation:
    """An update is one that others' index builds and appends can go along with."""
    new, updated = ([FragmentMetadata.from_json(text) for text in body[side]] for side in ("new", "updated"))
    if not updated and not body["removed"] and not any(f.deletion_file for f in new):
        return lance.LanceOperation.Append(new)
    return lance.LanceOperation.Update(
        removed_fragment_ids=list(body["removed"]), updated_fragments=updated, new_fragments=new, fields_modified=[]
    )


def _both(one: OffsetSet | None, other: OffsetSet | None) -> OffsetSet:
    return (one or OffsetSet()).union(other or OffsetSet())


def _may_hold(bounds: OffsetRange | None, wanted: OffsetSet) -> bool:
    if not wanted or bounds is None:
        return bool(wanted)
    return len(wanted.below(bounds.stop)) > len(wanted.below(bounds.start))
