# SPDX-License-Identifier: Apache-2.0
"""Commits of one Paimon table: manifests first, then one snapshot file, created where none is, on an exact head."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pypaimon.api.rest_exception import RESTException
from pypaimon.catalog.catalog_exception import TableNotExistException
from pypaimon.write.commit_message_serializer import deserialize_commit_message

from lakeward.errors import (
    CommitConflict,
    CommitUnknown,
    FaultInjected,
    InvalidRequest,
    LakeTableGone,
)
from lakeward.lake.conflict import describe_conflict
from lakeward.lake.paimon.commit.catalogcommit import describe, hand_over
from lakeward.lake.paimon.commit.foreignrows import find_foreign_rows, find_stale, foreign_files
from lakeward.lake.paimon.commit.newsnapshot import (
    APPEND,
    COMPACT,
    OVERWRITE,
    ManifestChange,
    NewSnapshot,
    added,
    beside,
    removed,
)
from lakeward.lake.paimon.commit.snapshotfile import create, mark
from lakeward.lake.paimon.meta.connection import PaimonConnection, lake_errors
from lakeward.lake.paimon.meta.expiry import plan_expiry
from lakeward.lake.paimon.meta.history import PaimonHistory, PaimonSnapshot, is_managed, snapshot_path, table_folder
from lakeward.lake.paimon.meta.manifests import ADD, Manifests
from lakeward.lake.paimon.meta.mapping import check_options
from lakeward.lake.paimon.meta.names import round_prefix
from lakeward.lake.paimon.rewrite import REWRITE_KIND
from lakeward.lake.paimon.writer import HANDLE_KIND, RESULT_KIND, VERSION
from lakeward.lake.s3files import files_of
from lakeward.model.bucket import Bucket
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, TableId
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.model.versioned import pack, unpack
from lakeward.spi.commit import CommitProperties, Committable, Precondition, Renewal
from lakeward.spi.flussoffsets import encode_fluss_offsets
from lakeward.spi.lake import LakeCommitter
from lakeward.spi.lakefile import LakeSnapshot
from lakeward.spi.rewrite import PreparedRewrite, RewriteResult, rows_after
from lakeward.spi.snapshotkeys import OFFSETS_KEY, OWN_OFFSETS_KEY, TABLE_ID_KEY, encode_all_keys, is_of

PAYLOAD_KIND = "paimon-committable"


class PaimonLakeCommitter(LakeCommitter):
    def __init__(self, connection: PaimonConnection, table: TableInfo) -> None:
        self._connection, self._info, self._where = connection, table, str(table.path)
        lake_table = connection.load(table.path)
        self._files, self._folder = files_of(lake_table), table_folder(lake_table)

    def begin(self, round_id: RoundId, base: LakeBase | None = None) -> bytes:
        return pack(HANDLE_KIND, VERSION, {"prefix": self.prefix(round_id)})

    def prefix(self, round_id: RoundId) -> str:
        return round_prefix(self._folder, round_id)

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
        if any(replaced.values()):
            raise InvalidRequest(what=f"replaced rows of {self._where}", reason="this lake merges by key")
        if back := properties.breach(base):
            raise CommitConflict(table=self._where, round_id=properties.round_id, reason=back, lost=True)
        history, manifests = self._ground(base, properties.round_id)
        bodies = [unpack(RESULT_KIND, VERSION, data) for data in results]
        messages = [self._message(manifests.table, blob) for _, _, blobs in bodies for blob in blobs]
        is_resync = properties.generation > base.generation
        foreign = find_foreign_rows(self._info, history, manifests, renewal, is_resync=is_resync)
        gone = [*foreign, *find_stale(self._info, history, manifests, base, properties.offsets)]
        keys = encode_all_keys(self._info.table_id, base, properties, fence_step=fence_step)
        keys |= self._fluss_keys(history, base, properties)
        new = [added(manifests.table, m, f) for m in messages for f in m.new_files]
        changelog = [added(manifests.table, m, f) for m in messages for f in m.changelog_files]
        change = ManifestChange(OVERWRITE if gone else APPEND, [*new, *map(removed, gone)], changelog)
        with lake_errors(self._where, "prepare a commit of"):
            payload = self._payload(history, manifests, properties.round_id, change, keys)
        options = manifests.table.table_schema.options
        return Committable(
            base=base,
            payload=payload,
            rows=sum(b["rows"] for _, b, _ in bodies),
            deletes=len(gone),
            files=sum(b["files"] for _, b, _ in bodies),
            bytes_written=sum(b["bytes"] for _, b, _ in bodies),
            expirable=tuple(plan_expiry(history, options, _now_ms(), coming=1)),
        )

    def prepare_rewrite(
        self,
        results: Sequence[RewriteResult],
        base: LakeBase,
        round_id: RoundId,
        extra: Mapping[str, str] | None = None,
    ) -> PreparedRewrite:
        history, manifests = self._ground(base, round_id)
        with lake_errors(self._where, "read manifests of"):
            live = {e.path: e for e in manifests.live(history.head)}
        whole = [r for r in results if all(f.path in live for f in r.group.files)]
        foreign = foreign_files(self._info, history, manifests) if whole else {}
        whole = [r for r in whole if not any(f.path in foreign for f in r.group.files)]
        left_out = tuple(r.group.index for r in results if r not in whole)
        if not whole or base.token is None:
            return PreparedRewrite(committable=None, left_out=left_out)
        entries = []
        for result in whole:
            inputs = [live[f.path] for f in result.group.files]
            _, _, blobs = unpack(REWRITE_KIND, VERSION, result.payload)
            new = [f for blob in blobs for f in self._message(manifests.table, blob).new_files]
            entries += [*(beside(inputs[0], ADD, f) for f in new), *map(removed, inputs)]
        own, rows = CommitProperties.rewrite(base, extra), rows_after(whole, base.lake_rows)
        kind = OVERWRITE if all(r.group.is_dropped for r in whole) else COMPACT
        keys = encode_all_keys(self._info.table_id, base, own, rows=rows, rewrite_id=round_id)
        keys |= self._fluss_keys(history, base, own)
        with lake_errors(self._where, "prepare a commit of"):
            payload = self._payload(history, manifests, round_id, ManifestChange(kind, entries), keys)
        committable = Committable(
            base=base,
            payload=payload,
            rows=sum(r.rows for r in whole),
            files=sum(e.kind == ADD for e in entries),
            bytes_written=sum(r.bytes_written for r in whole),
        )
        return PreparedRewrite(committable=committable, left_out=left_out)

    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        _, payload, _ = unpack(PAYLOAD_KIND, VERSION, committable.payload)
        round_id, new = RoundId(payload["round"]), PaimonSnapshot({**payload["snapshot"], "timeMillis": _now_ms()})
        if broken := precondition.breach(committable.base, TableId(new.properties[TABLE_ID_KEY])):
            raise CommitConflict(table=self._where, round_id=round_id, reason=broken, lost=True)
        history = self._history()
        base = None if payload["base"] is None else PaimonSnapshot(payload["base"])
        if not _is_head(history, base):
            raise self._conflict(round_id, "the head moved since the base was read", precondition)
        try:
            fault_point("lake.before-commit", round_id=round_id)
            landed = self._land(base, new, payload.get("managed"))
            fault_point("lake.after-commit", round_id=round_id)
        except TableNotExistException as error:
            raise LakeTableGone(table=self._where) from error
        except (FaultInjected, OSError, RuntimeError, RESTException) as error:
            raise CommitUnknown(table=self._where, round_id=round_id, reason=str(error)) from error
        if not landed:
            raise self._conflict(round_id, f"snapshot {new.number} exists", precondition)
        self._forget(committable, new)
        return self._history().describe(new)

    def _land(self, base: PaimonSnapshot | None, new: PaimonSnapshot, managed: Mapping[str, Any] | None) -> bool:
        """`managed`: of a table whose catalog takes commits."""
        if managed is None:
            return create(self._files, self._folder, new)
        landed = hand_over(self._connection.load(self._info.path), base, new, managed)
        there = None if landed else self._history().find(new.number)
        if not landed and (there is None or not there.is_same(new)):
            return False
        mark(self._files, self._folder, new)
        return True

    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        """A rewrite copies the id of the round before it: the oldest of them is the round's own."""
        history, landed = self._history(), None
        for snapshot in history.newest_first():
            if is_of(snapshot.properties, round_id):
                landed = snapshot
            elif landed is not None and snapshot.is_ours:
                break
        return None if landed is None else history.describe(landed)

    def _ground(self, base: LakeBase, round_id: RoundId) -> tuple[PaimonHistory, Manifests]:
        """The table as it is. Raises `CommitConflict` if its head is not the base's, `LakeSchemaBroken`."""
        lake_table = self._connection.load(self._info.path)
        history = PaimonHistory.of(lake_table, self._info)
        if base.head != (None if history.head is None else history.head.id):
            on_base = Precondition.on(self._info.table_id, base)
            raise self._conflict(round_id, "the head moved since the base was read", on_base)
        check_options(self._info, lake_table.table_schema.options)
        return history, Manifests(lake_table)

    def _fluss_keys(self, history: PaimonHistory, base: LakeBase, properties: CommitProperties) -> dict[str, str]:
        """For a table of a Fluss cluster: offsets are where Fluss put them for this commit; one that moves nothing
        copies the last place. Fluss deletes that file after the next commit, so they are in the snapshot too."""
        if history.partitions is None:
            return {}
        offsets, newest = base.offsets.overlaid(properties.offsets), history.newest_ours()
        own = json.dumps(encode_fluss_offsets(self._info.table_id, offsets, history.partitions))
        last = {} if newest is None else {OFFSETS_KEY: newest.properties.get(OFFSETS_KEY, "")}
        return {OWN_OFFSETS_KEY: own, OFFSETS_KEY: "", **last, **properties.extra}

    def _payload(
        self,
        history: PaimonHistory,
        manifests: Manifests,
        round_id: RoundId,
        change: ManifestChange,
        keys: dict[str, str],
    ) -> bytes:
        is_counted = not self._info.is_pk and change.kind != COMPACT
        body = NewSnapshot(manifests, history.head, round_id).build(change, keys, count_rows=is_counted)
        base = None if history.head is None else history.head.body
        managed = describe(manifests.table, change.entries) if is_managed(manifests.table) else None
        fields = {"round": round_id, "base": base, "snapshot": body, "managed": managed}
        return pack(PAYLOAD_KIND, VERSION, fields)

    def _forget(self, committable: Committable, new: PaimonSnapshot) -> None:
        """Takes expired snapshots out of the table; their files stay for `delete_expired`."""
        for number in {int(s) for s in committable.expire} - {new.number}:
            with suppress(OSError):  # upkeep's own expiry takes what is left
                self._files.delete(snapshot_path(self._folder, number))

    def _message(self, lake_table: Any, blob: bytes) -> Any:
        schema = lake_table.table_schema
        keys = lake_table.trimmed_primary_keys_fields if schema.primary_keys else None
        return deserialize_commit_message(blob, lake_table.partition_keys_fields, keys)

    def _history(self) -> PaimonHistory:
        return PaimonHistory.of(self._connection.load(self._info.path), self._info)

    def _conflict(self, round_id: RoundId, reason: str, precondition: Precondition) -> CommitConflict:
        def load() -> LakeBase:
            return self._history().base(self._info.table_id)

        return describe_conflict(self._where, round_id, reason, precondition, load)


def _is_head(history: PaimonHistory, base: PaimonSnapshot | None) -> bool:
    if base is None or history.head is None:
        return base is None and history.head is None
    return history.head.is_same(base)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
