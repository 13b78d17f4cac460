# SPDX-License-Identifier: Apache-2.0
"""Puts a snapshot under its number, where none is, or hands it to a REST catalog, which does so: this is the commit."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.snapshot.catalog_snapshot_commit import CatalogSnapshotCommit
from pypaimon.snapshot.snapshot import Snapshot
from pypaimon.snapshot.snapshot_commit import PartitionStatistics

from lakeward.lake.paimon.meta.history import PaimonSnapshot, mark_path, snapshot_numbers, snapshot_path, tag_path
from lakeward.lake.paimon.meta.manifests import ADD, value_text
from lakeward.lake.tablefiles import TableFiles
from lakeward.spi import TAG


def create(files: TableFiles, folder: str, new: PaimonSnapshot) -> bool:
    """Makes `snapshot-N`, then our tag and mark, which may lag behind after a crash, and the hint for other readers."""
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
    """The snapshot's own text under the tag's name is a tag that is kept for ever; one that is found in another's tag
    has a time to live with it."""
    body = {k: v for k, v in tagged.body.items() if k not in ("tagCreateTime", "tagTimeRetained")}
    files.put(tag_path(folder, name), json.dumps(body, indent=2))


def _is_late(files: TableFiles, folder: str, number: int) -> bool:
    """Was the number free because its snapshot had expired? Whoever slept so long finds younger numbers that are older
    files."""
    later = [n for n in snapshot_numbers(files, folder) if n > number]
    made_at = files.made_at(snapshot_path(folder, number)) if later else None
    ages = [files.made_at(snapshot_path(folder, n)) for n in later]
    return made_at is not None and any(at is not None and at < made_at for at in ages)


def hand_over(lake_table: Any, base: PaimonSnapshot | None, new: PaimonSnapshot, managed: Mapping[str, Any]) -> bool:
    """One attempt; false where the head is another one. `managed`: what `describe` said when it was prepared: a table
    that was dropped and made anew has another id. Raises what the catalog's client raises: then nobody knows, but for
    `TableNotExistException`."""
    snapshot = JSON.from_json(json.dumps(new.body), Snapshot)
    base_id = None if base is None else base.body.get("uuid")
    statistics = [JSON.from_json(json.dumps(f), PartitionStatistics) for f in managed["partitions"]]
    environment = lake_table.catalog_environment
    with CatalogSnapshotCommit(environment.catalog_loader.load(), environment.identifier, managed["id"]) as commit:
        return bool(commit.commit(base_id, snapshot, statistics))


def describe(lake_table: Any, entries: Sequence[Any]) -> dict[str, Any]:
    """Of a commit with these manifest entries: the table's id, and figures of the partitions that it changes. Pure."""
    return {"id": lake_table.catalog_environment.uuid, "partitions": _count_partitions(lake_table, entries)}


def _count_partitions(lake_table: Any, entries: Sequence[Any]) -> list[dict[str, Any]]:
    found: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(
        lambda: dict.fromkeys(("recordCount", "fileSizeInBytes", "fileCount", "lastFileCreationTime"), 0)
    )
    for entry in entries:
        figures, sign = found[tuple(entry.partition.values)], 1 if entry.kind == ADD else -1
        figures["recordCount"] += sign * int(entry.file.row_count)
        figures["fileSizeInBytes"] += sign * int(entry.file.file_size)
        figures["fileCount"] += sign
        figures["totalBuckets"] = int(entry.total_buckets)
        made_at = int(entry.file.creation_time_epoch_millis() or 0)
        figures["lastFileCreationTime"] = max(made_at, figures["lastFileCreationTime"])
    return [
        {"spec": {k: value_text(v) for k, v in zip(lake_table.partition_keys, values, strict=True)}, **figures}
        for values, figures in found.items()
    ]
