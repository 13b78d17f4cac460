# SPDX-License-Identifier: Apache-2.0
"""Hands a snapshot to a REST catalog, which takes it on an exact head and puts it under its number: this is the commit.

The head is named by the id that its own writer gave it; a catalog that finds another one refuses.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.snapshot.catalog_snapshot_commit import CatalogSnapshotCommit
from pypaimon.snapshot.snapshot import Snapshot
from pypaimon.snapshot.snapshot_commit import PartitionStatistics

from lakeward.lake.paimon.meta.history import PaimonSnapshot
from lakeward.lake.paimon.meta.manifests import ADD, value_text


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
