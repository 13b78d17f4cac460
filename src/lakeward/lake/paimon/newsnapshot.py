# SPDX-License-Identifier: Apache-2.0
"""A new snapshot: its manifests are written, and its body is ready to be created under its number."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.snapshot import snapshot as pai
from pypaimon.snapshot.catalog_snapshot_commit import CatalogSnapshotCommit
from pypaimon.snapshot.snapshot import Snapshot
from pypaimon.snapshot.snapshot_commit import PartitionStatistics
from pypaimon.table.row.generic_row import GenericRow

from lakeward.lake.paimon.meta.history import PaimonSnapshot, mark_path, snapshot_numbers, snapshot_path, tag_path
from lakeward.lake.paimon.meta.layout import name_of
from lakeward.lake.paimon.meta.manifests import ADD, DELETE, Entry, Manifests, value_text
from lakeward.lake.paimon.writer import IDENTIFIER
from lakeward.lake.tablefiles import TableFiles, sync
from lakeward.model import RoundId, fault_point
from lakeward.spi import COMMIT_USER, ROWS_KEY, TAG

APPEND, OVERWRITE, COMPACT = "APPEND", "OVERWRITE", "COMPACT"


@dataclass(frozen=True)
class ManifestChange:
    """Changes of a snapshot: manifest entries, and those of changelog files."""

    kind: str
    entries: Sequence[Any]
    changelog: Sequence[Any] = ()

    @property
    def rows(self) -> int:
        return sum(int(e.file.row_count) * (1 if e.kind == ADD else -1) for e in self.entries)


class NewSnapshot:
    """Builds the snapshot on `head`. A repeated call writes other files."""

    def __init__(self, manifests: Manifests, head: PaimonSnapshot | None, round_id: RoundId) -> None:
        self._manifests, self._head, self._round_id = manifests, head, round_id
        self._unique = uuid.uuid4().hex

    def build(self, change: ManifestChange, properties: dict[str, str], *, count_rows: bool = False) -> dict[str, Any]:
        fault_point("lake.before-manifests", path=self._manifests.folder)
        base_name, base_size = self._list("base", self._base())
        delta_name, delta_size = self._list("delta", self._manifest("manifest", change.entries))
        log_name, log_size = (
            self._list("changelog", self._manifest("changelog", change.changelog)) if change.changelog else (None, None)
        )
        before = self._head.body if self._head is not None else {}
        total = int(before.get("totalRecordCount") or 0) + change.rows
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
            changelog_record_count=sum(e.file.row_count for e in change.changelog) if change.changelog else None,
            total_record_count=total,
            delta_record_count=change.rows,
            commit_user=COMMIT_USER,
            commit_identifier=IDENTIFIER,
            commit_kind=change.kind,
            time_millis=time.time_ns() // 1_000_000,
            watermark=before.get("watermark"),
            index_manifest=before.get("indexManifest"),
            next_row_id=before.get("nextRowId"),
            properties={**properties, **({ROWS_KEY: str(total)} if count_rows else {})},
        )
        body: dict[str, Any] = json.loads(JSON.to_json(snapshot))
        return body

    def _base(self) -> list[Any]:
        """Returns the head's manifests; merges the youngest if there are enough."""
        metas = self._manifests.metas(self._head)
        first = plan_merge([int(m.num_added_files + m.num_deleted_files) for m in metas])
        if first == len(metas):
            return metas
        return [*metas[:first], *self._manifest("merged", self._manifests.merged(metas[first:]))]

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


def added(lake_table: Any, message: Any, file: Any) -> Any:
    """The entry of a writer's file."""
    total = message.total_buckets if message.total_buckets is not None else lake_table.total_buckets
    partition = GenericRow(list(message.partition), lake_table.partition_keys_fields)
    return ManifestEntry(kind=ADD, partition=partition, bucket=message.bucket, total_buckets=total, file=file)


def beside(entry: Entry, kind: int, file: Any) -> Any:
    """An entry of the same bucket."""
    raw = entry.raw
    return ManifestEntry(
        kind=kind, partition=raw.partition, bucket=raw.bucket, total_buckets=raw.total_buckets, file=file
    )


def removed(entry: Entry) -> Any:
    return beside(entry, DELETE, entry.file)


FAN_IN = 8


def plan_merge(entries: Sequence[int], fan_in: int = FAN_IN) -> int:
    """Plans a merge. `entries`: number of each manifest's entries, oldest first. Returns the index of the first
    manifest to merge, up to the last; `len(entries)`: none.

    A manifest's class is the power of the fan-in that its entries reach. The youngest are merged once together they
    reach a class above each of them: every merge raises the class of each entry, so an entry is written as often as
    there are classes."""
    start, classes = len(entries), [_class(n, fan_in) for n in entries]
    for power in sorted(set(classes)):
        first = next((at + 1 for at in reversed(range(len(classes))) if classes[at] > power), 0)
        if len(entries) - first > 1 and sum(entries[first:]) >= fan_in ** (power + 1):
            start = first
    return start


def _class(entries: int, fan_in: int) -> int:
    power = 0
    while fan_in ** (power + 1) <= entries:
        power += 1
    return power


def create(files: TableFiles, folder: str, new: PaimonSnapshot) -> bool:
    """Creates `snapshot-N`, then our tag and mark, which may be older after a crash, and the hint for other readers."""
    path, text = snapshot_path(folder, new.number), json.dumps(new.body, indent=2)
    if not files.put_exclusively(path, text):
        return False
    if _is_late(files, folder, new.number):
        files.delete(path)
        return False
    mark(files, folder, new)
    files.put(os.path.join(folder, "snapshot", "LATEST"), str(new.number))
    return True


def mark(files: TableFiles, folder: str, new: PaimonSnapshot) -> None:
    put_tag(files, folder, TAG, new)
    files.put(mark_path(folder), json.dumps(new.body, indent=2))


def put_tag(files: TableFiles, folder: str, name: str, tagged: PaimonSnapshot) -> None:
    """Tags a snapshot for ever: a tag file with the snapshot's own text has no time to live, unlike another's tag."""
    body = {k: v for k, v in tagged.body.items() if k not in ("tagCreateTime", "tagTimeRetained")}
    files.put(tag_path(folder, name), json.dumps(body, indent=2))


def _is_late(files: TableFiles, folder: str, number: int) -> bool:
    """Whether the number was free because its snapshot had expired. After a long pause, files with higher numbers are
    older."""
    later = [n for n in snapshot_numbers(files, folder) if n > number]
    made_at = files.made_at(snapshot_path(folder, number)) if later else None
    ages = [files.made_at(snapshot_path(folder, n)) for n in later]
    return made_at is not None and any(at is not None and at < made_at for at in ages)


def hand_over(lake_table: Any, base: PaimonSnapshot | None, new: PaimonSnapshot, managed: Mapping[str, Any]) -> bool:
    """Tries one commit; false if the head is another one. `managed`: the result of `describe` when it was prepared: a
    table that was dropped and created again has another id. Raises errors of the catalog's client: the outcome is
    unknown then, except for `TableNotExistException`."""
    snapshot = JSON.from_json(json.dumps(new.body), Snapshot)
    base_id = None if base is None else base.body.get("uuid")
    statistics = [JSON.from_json(json.dumps(f), PartitionStatistics) for f in managed["partitions"]]
    environment = lake_table.catalog_environment
    with CatalogSnapshotCommit(environment.catalog_loader.load(), environment.identifier, managed["id"]) as commit:
        return bool(commit.commit(base_id, snapshot, statistics))


def describe(lake_table: Any, entries: Sequence[Any]) -> dict[str, Any]:
    """Describes a commit with these manifest entries: the table's id, and figures of the partitions that it changes.
    Pure."""
    return {"id": lake_table.catalog_environment.uuid, "partitions": _count_partitions(lake_table, entries)}


def _count_partitions(lake_table: Any, entries: Sequence[Any]) -> list[dict[str, Any]]:
    counts: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(
        lambda: dict.fromkeys(("recordCount", "fileSizeInBytes", "fileCount", "lastFileCreationTime"), 0)
    )
    for entry in entries:
        figures, sign = counts[tuple(entry.partition.values)], 1 if entry.kind == ADD else -1
        figures["recordCount"] += sign * int(entry.file.row_count)
        figures["fileSizeInBytes"] += sign * int(entry.file.file_size)
        figures["fileCount"] += sign
        figures["totalBuckets"] = int(entry.total_buckets)
        made_at = int(entry.file.creation_time_epoch_millis() or 0)
        figures["lastFileCreationTime"] = max(made_at, figures["lastFileCreationTime"])
    return [
        {"spec": {k: value_text(v) for k, v in zip(lake_table.partition_keys, values, strict=True)}, **figures}
        for values, figures in counts.items()
    ]
