# SPDX-License-Identifier: Apache-2.0
"""Commits of one Paimon table: manifests first, then one snapshot file, created where none is, on an exact head."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.snapshot import snapshot as pai
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.commit_message_serializer import deserialize_commit_message

from lakeward.errors import CommitConflict, CommitUnknown, FaultInjected, InvalidRequest, LakewardError
from lakeward.lake.paimon.connection import PaimonConnection, lake_errors
from lakeward.lake.paimon.expiry import plan_expiry
from lakeward.lake.paimon.foreignrows import find_foreign_rows
from lakeward.lake.paimon.history import (
    PaimonHistory,
    PaimonSnapshot,
    mark_path,
    snapshot_numbers,
    snapshot_path,
    table_folder,
    tag_path,
)
from lakeward.lake.paimon.manifests import ADD, DELETE, Entry, Manifests
from lakeward.lake.paimon.names import name_of, round_prefix, sync
from lakeward.lake.paimon.writer import HANDLE_KIND, IDENTIFIER, RESULT_KIND, VERSION
from lakeward.model.bucket import Bucket
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, TableId
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.model.versioned import pack, unpack
from lakeward.spi.commit import CommitProperties, Committable, Precondition, Renewal
from lakeward.spi.lake import LakeCommitter
from lakeward.spi.lakefile import LakeSnapshot
from lakeward.spi.snapshotkeys import COMMIT_USER, OFFSETS_KEY, ROWS_KEY, TABLE_ID_KEY, encode_keys, is_of

PAYLOAD_KIND = "paimon-committable"


class PaimonLakeCommitter(LakeCommitter):
    def __init__(self, connection: PaimonConnection, table: TableInfo) -> None:
        self._connection, self._info, self._where = connection, table, str(table.path)
        self._folder = table_folder(connection.load(table.path))

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
        lake_table = self._connection.load(self._info.path)
        history = PaimonHistory.load(lake_table, self._where)
        head = history.head
        if base.head != (None if head is None else head.id):
            on_base = Precondition.on(self._info.table_id, base)
            raise self._conflict(properties.round_id, "the head moved since the base was read", on_base)
        manifests = Manifests(lake_table)
        bodies = [unpack(RESULT_KIND, VERSION, data) for data in results]
        messages = [self._message(lake_table, blob) for _, _, blobs in bodies for blob in blobs]
        is_resync = properties.generation > base.generation
        gone = find_foreign_rows(self._info, history, manifests, renewal, is_resync=is_resync)
        keys = {
            **encode_keys(self._info.table_id, base, properties, fence_step=fence_step),
            OFFSETS_KEY: json.dumps(base.offsets.overlaid(properties.offsets).to_json()),
            **properties.extra,
        }
        with lake_errors(self._where, "prepare a commit of"):
            new = _NewSnapshot(manifests, head, properties.round_id)
            body = new.build(messages, gone, keys, count_rows=not self._info.is_pk)
        payload = {"round": properties.round_id, "base": None if head is None else head.body, "snapshot": body}
        return Committable(
            base=base,
            payload=pack(PAYLOAD_KIND, VERSION, payload),
            rows=sum(b["rows"] for _, b, _ in bodies),
            deletes=len(gone),
            files=sum(b["files"] for _, b, _ in bodies),
            bytes_written=sum(b["bytes"] for _, b, _ in bodies),
            expirable=tuple(plan_expiry(history, lake_table.table_schema.options, _now_ms(), coming=1)),
        )

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
            landed = _create(self._folder, new)
            fault_point("lake.after-commit", round_id=round_id)
        except (FaultInjected, OSError) as error:
            raise CommitUnknown(table=self._where, round_id=round_id, reason=str(error)) from error
        if not landed:
            raise self._conflict(round_id, f"snapshot {new.number} exists", precondition)
        self._forget(committable, new)
        return self._history().describe(new)

    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        history = self._history()
        landed = next((s for s in history.newest_first() if is_of(s.properties, round_id)), None)
        return None if landed is None else history.describe(landed)

    def _forget(self, committable: Committable, new: PaimonSnapshot) -> None:
        """Takes expired snapshots out of the table; their files stay for `delete_expired`."""
        for number in {int(s) for s in committable.expire} - {new.number}:
            with suppress(FileNotFoundError):
                os.unlink(snapshot_path(self._folder, number))

    def _message(self, lake_table: Any, blob: bytes) -> Any:
        schema = lake_table.table_schema
        keys = lake_table.trimmed_primary_keys_fields if schema.primary_keys else None
        return deserialize_commit_message(blob, lake_table.partition_keys_fields, keys)

    def _history(self) -> PaimonHistory:
        return PaimonHistory.load(self._connection.load(self._info.path), self._where)

    def _conflict(self, round_id: RoundId, reason: str, precondition: Precondition) -> CommitConflict:
        """Did a commit of ours win, or did somebody else's come between?"""
        try:
            lost = precondition.breach(self._history().base(self._info.table_id)) is not None
        except LakewardError:
            lost = False
        return CommitConflict(table=self._where, round_id=round_id, reason=reason, lost=lost)


class _NewSnapshot:
    """Writes the manifests of a snapshot on `head`, and its body."""

    def __init__(self, manifests: Manifests, head: PaimonSnapshot | None, round_id: RoundId) -> None:
        self._manifests, self._head, self._round_id = manifests, head, round_id
        self._unique = uuid.uuid4().hex

    def build(
        self, messages: Sequence[Any], gone: Sequence[Entry], properties: dict[str, str], *, count_rows: bool
    ) -> dict[str, Any]:
        entries = [self._added(m, f) for m in messages for f in m.new_files]
        entries += [_removed(entry) for entry in gone]
        changelog = [self._added(m, f) for m in messages for f in m.changelog_files]
        base_name, base_size = self._list("base", self._manifests.metas(self._head))
        delta_name, delta_size = self._list("delta", self._manifest("manifest", entries))
        log_name, log_size = (
            self._list("changelog", self._manifest("changelog", changelog)) if changelog else (None, None)
        )
        delta = sum(e.file.row_count * (1 if e.kind == ADD else -1) for e in entries)
        before = self._head.body if self._head is not None else {}
        total = int(before.get("totalRecordCount") or 0) + delta
        snapshot = pai.Snapshot(
            version=3,
            id=1 if self._head is None else self._head.number + 1,
            schema_id=self._manifests.table.table_schema.id,
            base_manifest_list=base_name,
            base_manifest_list_size=base_size,
            delta_manifest_list=delta_name,
            delta_manifest_list_size=delta_size,
            changelog_manifest_list=log_name,
            changelog_manifest_list_size=log_size,
            changelog_record_count=sum(e.file.row_count for e in changelog) if changelog else None,
            total_record_count=total,
            delta_record_count=delta,
            commit_user=COMMIT_USER,
            commit_identifier=IDENTIFIER,
            commit_kind="OVERWRITE" if gone else "APPEND",
            time_millis=_now_ms(),
            watermark=before.get("watermark"),
            index_manifest=before.get("indexManifest"),
            next_row_id=before.get("nextRowId"),
            properties={**properties, **({ROWS_KEY: str(total)} if count_rows else {})},
        )
        body: dict[str, Any] = json.loads(JSON.to_json(snapshot))
        return body

    def _added(self, message: Any, file: Any) -> Any:
        table = self._manifests.table
        total = message.total_buckets if message.total_buckets is not None else table.total_buckets
        partition = GenericRow(list(message.partition), table.partition_keys_fields)
        return ManifestEntry(kind=ADD, partition=partition, bucket=message.bucket, total_buckets=total, file=file)

    def _manifest(self, kind: str, entries: Sequence[Any]) -> list[Any]:
        prefix = f"{name_of('manifest', self._round_id)}{self._unique}-{kind}"
        size = self._manifests.table.options.manifest_target_size()
        metas: list[Any] = self._manifests.files.rolling_write(list(entries), size, prefix)
        sync([os.path.join(self._manifests.folder, m.file_name) for m in metas])
        return metas

    def _list(self, kind: str, metas: Sequence[Any]) -> tuple[str, int]:
        name = f"{name_of('manifest-list', self._round_id)}{self._unique}-{kind}"
        size: int = self._manifests.lists.write(name, list(metas))
        sync([os.path.join(self._manifests.folder, name)])
        return name, size


def _removed(entry: Entry) -> Any:
    raw = entry.raw
    return ManifestEntry(
        kind=DELETE, partition=raw.partition, bucket=raw.bucket, total_buckets=raw.total_buckets, file=raw.file
    )


def _is_head(history: PaimonHistory, base: PaimonSnapshot | None) -> bool:
    if base is None or history.head is None:
        return base is None and history.head is None
    return history.head.is_same(base)


def _create(folder: str, new: PaimonSnapshot) -> bool:
    """Makes `snapshot-N` by link(2), which fails where one is, whoever made it; its name never shows half a file. Then
    our tag and mark, which may lag behind after a crash, and the hint for other readers."""
    path = snapshot_path(folder, new.number)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    text = json.dumps(new.body, indent=2)
    staged = _stage(path, text)
    try:
        os.link(staged, path)
        is_late = _is_late(folder, new.number, os.stat(path).st_ctime_ns)
    except FileExistsError:
        return False
    finally:
        os.unlink(staged)
    if is_late:
        os.unlink(path)
        return False
    sync([path])
    for beside in (tag_path(folder), mark_path(folder)):
        _replace(beside, text)
    _replace(os.path.join(folder, "snapshot", "LATEST"), str(new.number))
    return True


def _is_late(folder: str, number: int, made_ns: int) -> bool:
    """Was the number free because its snapshot had expired? Whoever slept so long finds younger numbers that are older
    files."""
    for later in (n for n in snapshot_numbers(folder) if n > number):
        with suppress(FileNotFoundError):
            if os.stat(snapshot_path(folder, later)).st_ctime_ns < made_ns:
                return True
    return False


def _replace(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.replace(_stage(path, text), path)


def _stage(path: str, text: str) -> str:
    """Beside it, under a name that nobody reads."""
    folder, name = os.path.split(path)
    staged = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    with open(staged, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    return staged


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
