# SPDX-License-Identifier: Apache-2.0
"""Commits of one Delta table: replaced offsets become vectors, then one log entry at exactly the next version."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from lakeward.errors import (
    CommitConflict,
    CommitUnknown,
    FaultInjected,
    ForeignRowsFound,
    LakeUnavailable,
    ReplacedRowMissing,
)
from lakeward.lake.conflict import describe_conflict
from lakeward.lake.delta.commit.expiry import plan_expiry
from lakeward.lake.delta.commit.foreignrows import Key, find_foreign_rows
from lakeward.lake.delta.commit.reconcile import DeltaGround, choose_witness, describe, load_base
from lakeward.lake.delta.meta.actions import EXPIRED_KEY, VERSION_KEY, Action, AddFile, LogEntry, commit_info, say
from lakeward.lake.delta.meta.columns import parse_schema_string, table_schema
from lakeward.lake.delta.meta.failures import lake_errors
from lakeward.lake.delta.meta.features import features_due
from lakeward.lake.delta.meta.log import DeltaLog
from lakeward.lake.delta.meta.vector import write_vectors
from lakeward.lake.delta.rewrite import DeltaRewrittenGroup
from lakeward.lake.delta.scan.rows import DeltaFileRows
from lakeward.lake.delta.writer import DeltaWriteHandle, DeltaWriteResult, round_folder
from lakeward.model.bucket import Bucket
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, TableId
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.model.versioned import pack, unpack
from lakeward.spi.commit import CommitProperties, Committable, Precondition, Renewal
from lakeward.spi.foreignrows import removes_foreign_rows
from lakeward.spi.lake import LakeCommitter
from lakeward.spi.lakefile import LakeSnapshot
from lakeward.spi.rewrite import PreparedRewrite, RewriteResult, rows_after
from lakeward.spi.snapshotkeys import OFFSETS_KEY, TABLE_ID_KEY, encode_all_keys, is_of

_KIND, _VERSION = "delta-committable", 1
_APP = "lakeward"
_APPEND, _UPSERT, _REWRITE, _DROP = "WRITE", "MERGE", "OPTIMIZE", "DELETE"


class DeltaLakeCommitter(LakeCommitter):
    def __init__(self, log: DeltaLog, table: TableInfo) -> None:
        self._log, self._info = log, table

    def begin(self, round_id: RoundId, base: LakeBase | None = None) -> bytes:
        return DeltaWriteHandle.of(self._log.root, self._ground(base).state.metadata).to_bytes()

    def prefix(self, round_id: RoundId) -> str:
        return f"{self._log.root}/{round_folder(round_id)}/"

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
        if back := properties.breach(base):
            raise CommitConflict(table=self._log.table, round_id=properties.round_id, reason=back, lost=True)
        ground = self._fresh(base, properties.round_id)
        version = ground.state.version + 1
        new = [f.with_since(version) for data in results for f in DeltaWriteResult.from_bytes(data).files]
        gone = self._foreign(ground, properties.generation > base.generation, renewal)
        renewed = {} if renewal is None else renewal.offsets
        fault_point("lake.before-resolve", round_id=properties.round_id)
        gone = self._resolve(ground, new, replaced, renewed, gone)
        now_ms = int(time.time() * 1000)
        files = {f.key: f for f in (*ground.state.files.values(), *new)}
        vectors, vector_bytes = self._write_vectors(gone, files, properties.round_id)
        actions = features_due(ground.state, has_vectors=bool(vectors))
        actions += [f.removal(now_ms, changes_data=True) for k, f in ground.state.files.items() if k in vectors]
        changed = [f.with_vector(vectors[k], version) for k, f in ground.state.files.items() if k in vectors]
        new = [f.with_vector(vectors[f.key], version) if f.key in vectors else f for f in new]
        actions += [{"add": f.action} for f in (*changed, *new)]
        deletes = sum(vectors[k]["cardinality"] - files[k].deleted for k in vectors)
        added = sum(f.records or 0 for f in new)
        rows = self._rows(ground)
        total = sum(rows.count(f) for f in ground.state.files.values()) + added - deletes
        keys = encode_all_keys(self._info.table_id, base, properties, fence_step=fence_step, rows=total)
        keys |= choose_witness(ground.state, new)
        kind = _UPSERT if vectors else _APPEND
        return Committable(
            base=base,
            payload=self._pack(ground, properties.round_id, keys, actions, kind),
            rows=added,
            deletes=deletes,
            files=len(new) + bool(vectors),
            bytes_written=sum(f.size_bytes for f in new) + vector_bytes,
            expirable=tuple(plan_expiry(self._log, ground, now_ms, coming=1)),
        )

    def prepare_rewrite(
        self,
        results: Sequence[RewriteResult],
        base: LakeBase,
        round_id: RoundId,
        extra: Mapping[str, str] | None = None,
    ) -> PreparedRewrite:
        ground = self._fresh(base, round_id)
        live = {f.location(self._log.root): f for f in ground.state.files.values()}
        whole = [r for r in results if all(f.path in live for f in r.group.files)]
        if self._foreign(ground, True, None):
            whole = []  # the next round looks for them since our newest commit
        left_out = tuple(r.group.index for r in results if r not in whole)
        if not whole or base.token is None:
            return PreparedRewrite(committable=None, left_out=left_out)
        groups = [DeltaRewrittenGroup.from_bytes(r.payload) for r in whole]
        version, ages = ground.state.version + 1, [max(f.sequence for f in r.group.files) for r in whole]
        new = [f.with_since(age) for g, age in zip(groups, ages, strict=True) for f in g.files]
        late: dict[Key, OffsetSet] = {}
        for group in groups:
            late.update(group.carry_over(lambda path: self._rows(ground).deleted(live[path])))
        vectors, vector_bytes = self._write_vectors(late, {f.key: f for f in new}, round_id)
        now_ms = int(time.time() * 1000)
        inputs = [live[f.path] for r in whole for f in r.group.files]
        actions = features_due(ground.state, has_vectors=bool(vectors))
        is_dropped = all(r.group.is_dropped for r in whole)
        actions += [f.removal(now_ms, changes_data=is_dropped) for f in inputs]
        added = [f if f.key not in vectors else f.with_vector(vectors[f.key], version) for f in new]
        actions += [{"add": {**f.action, "dataChange": False}} for f in added]
        own = CommitProperties.rewrite(base, extra)
        rows = rows_after(whole, base.lake_rows)
        keys = encode_all_keys(self._info.table_id, base, own, rows=rows, rewrite_id=round_id)
        keys |= {} if is_dropped else choose_witness(ground.state, ())
        carried = sum(map(len, late.values()))
        committable = Committable(
            base=base,
            payload=self._pack(ground, round_id, keys, actions, _DROP if is_dropped else _REWRITE),
            rows=sum(r.rows for r in whole),
            deletes=carried,
            files=len(new) + bool(vectors),
            bytes_written=sum(r.bytes_written for r in whole) + vector_bytes,
        )
        return PreparedRewrite(committable=committable, left_out=left_out, carried=carried)

    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        _, body, _ = unpack(_KIND, _VERSION, committable.payload)
        round_id, version = RoundId(body["round"]), int(body["head"]) + 1
        if broken := precondition.breach(committable.base, TableId(body["keys"][TABLE_ID_KEY])):
            raise CommitConflict(table=self._log.table, round_id=round_id, reason=broken, lost=True)
        kept = {version - 1, *(int(v) for v in (committable.base.head,) if v)}
        expired = {*body["expired"], *(int(s) for s in committable.expire)} - kept
        said = {**body["keys"], VERSION_KEY: str(version), EXPIRED_KEY: json.dumps(sorted(expired))}
        try:
            fault_point("lake.before-commit", round_id=round_id)
            actions = (*_own_actions(said, version, body["operation"]), *body["actions"])
            landed = self._log.append(version, actions)
            fault_point("lake.after-commit", round_id=round_id)
        except (FaultInjected, LakeUnavailable) as error:
            raise CommitUnknown(table=self._log.table, round_id=round_id, reason=str(error)) from error
        if not landed:
            raise self._conflict(round_id, f"version {version} is there already", precondition)
        self._log.checkpoint_if_due(version)
        return describe(LogEntry.parse(version, actions), self._log.table)

    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        own = (e for e in self._log.entries(self._log.listing().versions) if is_of(e.keys, round_id))
        entry = next(own, None)
        return None if entry is None else describe(entry, self._log.table)

    def _ground(self, base: LakeBase | None) -> DeltaGround:
        loaded = None if base is None else base.loaded
        return loaded if isinstance(loaded, DeltaGround) else DeltaGround.load(self._log)

    def _fresh(self, base: LakeBase, round_id: RoundId) -> DeltaGround:
        """The newest version, which may have other columns or properties than the base had."""
        ground = self._ground(base)
        if self._log.listing().versions[-1:] != (ground.state.version,):
            ground = DeltaGround.load(self._log)
        if base.head != ground.head_id:
            on_base = Precondition.on(self._info.table_id, base)
            raise self._conflict(round_id, "the table moved on since the base was read", on_base)
        return ground

    def _conflict(self, round_id: RoundId, reason: str, precondition: Precondition) -> CommitConflict:
        def load() -> LakeBase:
            return load_base(self._log, self._info.table_id, DeltaGround.load(self._log))

        return describe_conflict(self._log.table, round_id, reason, precondition, load)

    def _pack(
        self, ground: DeltaGround, round_id: RoundId, keys: Mapping[str, str], actions: Sequence[Action], operation: str
    ) -> bytes:
        oldest = ground.listing.versions[0]
        body = {
            "head": ground.state.version,
            "round": round_id,
            "keys": dict(keys),
            "actions": list(actions),
            "operation": operation,
            "expired": sorted(v for v in ground.state.expired if v >= oldest),
        }
        return pack(_KIND, _VERSION, body)

    def _rows(self, ground: DeltaGround) -> DeltaFileRows:
        schema = table_schema(parse_schema_string(ground.state.metadata["schemaString"]))
        return DeltaFileRows(self._log.files, self._log.root, self._log.table, schema)

    def _foreign(self, ground: DeltaGround, is_resync: bool, renewal: Renewal | None) -> dict[Key, OffsetSet]:
        """Rows that go because no changelog has them. Raises `ForeignRowsFound` where the table's option says so."""
        if not self._info.is_pk:
            return {}
        foreign, hits, copies = find_foreign_rows(self._log, ground, self._rows(ground), renewal)
        if not hits or is_resync or (removes_foreign_rows(self._info) and not copies):
            return hits
        raise ForeignRowsFound(
            table=self._log.table,
            snapshots=", ".join(e.snapshot_id for e in foreign),
            rows=sum(map(len, hits.values())),
            file=next(iter(hits))[0],
        )

    def _resolve(
        self,
        ground: DeltaGround,
        new: Sequence[AddFile],
        replaced: Mapping[Bucket, OffsetSet],
        renewed: Mapping[Bucket, OffsetSet],
        gone: Mapping[Key, OffsetSet],
    ) -> dict[Key, OffsetSet]:
        """Positions per file: replaced offsets in files of the head or of this round, renewed ones in files of the head
        alone, and others' rows. Raises `ReplacedRowMissing`."""
        rows, keys, older = self._rows(ground), ground.state.partition_keys, list(ground.state.files.values())
        parts = {key: [positions] for key, positions in gone.items()}
        missing = dict(replaced)
        for file in (*older, *new):
            bucket = file.bucket(keys)
            is_old = file.key in ground.state.files
            wanted = _both(replaced.get(bucket), renewed.get(bucket) if is_old else None) if bucket else OffsetSet()
            if bucket is None or not _may_hold(file, wanted):
                continue
            offsets = rows.offsets(file)
            mask = wanted.mask(offsets)
            if mask.any():
                parts.setdefault(file.key, []).append(OffsetSet(mask.nonzero()[0]))
                if bucket in missing:
                    missing[bucket] = missing[bucket].minus(OffsetSet(offsets[mask]))
        for bucket, offsets_left in sorted(missing.items()):
            if offsets_left and not self._others_deleted(ground):
                raise ReplacedRowMissing(
                    table=self._log.table,
                    bucket=str(bucket),
                    offset=int(offsets_left.values[0]),
                    count=len(offsets_left),
                )
        return {key: reduce(OffsetSet.union, sets) for key, sets in parts.items()}

    def _others_deleted(self, ground: DeltaGround) -> bool:
        """Has another engine deleted rows, as far as the log tells? Then a replaced row may be gone for a reason."""
        return any(e.removes_rows for e in self._log.entries(ground.listing.versions) if not e.keys)

    def _write_vectors(
        self, gone: Mapping[Key, OffsetSet], files: Mapping[Key, AddFile], round_id: RoundId
    ) -> tuple[dict[Key, Action], int]:
        """Each merged with the one that is there; a file that loses no more row needs none."""
        merged: dict[Key, OffsetSet] = {}
        rows = DeltaFileRows(self._log.files, self._log.root, self._log.table, table_schema(()))
        for key, positions in gone.items():
            there = rows.deleted(files[key])
            both = there.union(positions)
            if len(both) > len(there):
                merged[key] = both
        if not merged:
            return {}, 0
        fault_point("lake.before-deletes", round_id=round_id)
        with lake_errors(self._log.table, "write vectors of"):
            by_path = {path: positions for (path, _), positions in merged.items()}
            vectors, size = write_vectors(self._log.files, self._log.root, round_folder(round_id), by_path)
        return {key: vectors[key[0]] for key in merged}, size


def _own_actions(said: Mapping[str, str], version: int, operation: str) -> Iterable[Action]:
    """What our entries begin with: for people and their tools, for engines that ask for our last one, for ourselves."""
    told = {k: v for k, v in said.items() if k not in (OFFSETS_KEY, EXPIRED_KEY)}
    info = commit_info(operation, **told)
    yield {"commitInfo": info}
    yield {"txn": {"appId": _APP, "version": version, "lastUpdated": info["timestamp"]}}
    yield say(said)


def _both(one: OffsetSet | None, other: OffsetSet | None) -> OffsetSet:
    return (one or OffsetSet()).union(other or OffsetSet())


def _may_hold(file: AddFile, wanted: OffsetSet) -> bool:
    bounds = file.offsets
    if not wanted or bounds is None:
        return bool(wanted)
    return len(wanted.below(bounds.stop)) > len(wanted.below(bounds.start))
