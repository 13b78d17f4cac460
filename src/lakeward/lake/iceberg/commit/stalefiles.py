# SPDX-License-Identifier: Apache-2.0
"""Files of a partition that a Fluss cluster dropped and made anew: its rows stayed in the lake, under the same values.

The new partition has another id, and so no offset of its own there; where the offsets still name a partition that is
gone, and files lie where the new one's first round writes, those are the old one's. In a PK table its keys would be
there twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.meta.manifests import FileKey, file_key
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.snapshotfiles import plan_files
from lakeward.model import GONE_PARTITION, Bucket, OffsetMap, TableInfo


@dataclass(frozen=True)
class StaleFiles:
    """`rows`: those of them that are alive; what keys delete is not looked at."""

    keys: frozenset[FileKey] = frozenset()
    paths: frozenset[str] = frozenset()
    rows: int = 0


def find_stale(
    ground: IcebergGround, table: TableInfo, committed: OffsetMap, offsets: Mapping[Bucket, int]
) -> StaleFiles:
    """`offsets`: those that the commit moves."""
    anew = {b for b in offsets if b.partition and b not in committed}
    if not table.is_pk or not anew or ground.head is None:
        return StaleFiles()
    if not any(b.partition.startswith(GONE_PARTITION) for b in committed):
        return StaleFiles()
    lake, keys = ground.table, table.descriptor.partition_keys
    deletes = DeleteFilter(lake.io, lake.metadata.schema())
    stale = [p for p in plan_files(lake.metadata, lake.io, ground.head, keys) if p.bucket in anew]
    rows = sum(p.file.record_count - len(deletes.positions(p.describe())) for p in stale)
    return StaleFiles(frozenset(file_key(p.file) for p in stale), frozenset(p.file.file_path for p in stale), rows)
