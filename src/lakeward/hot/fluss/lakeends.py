# SPDX-License-Identifier: Apache-2.0
"""Offsets of a lake as Fluss's messages have them: by the numbers of partitions, those of dropped ones among them."""

from __future__ import annotations

from collections.abc import Mapping

from lakeward.hot.fluss.tables import partition_ids
from lakeward.hot.fluss.wire.messages import Message
from lakeward.model import GONE_PARTITION, Bucket, OffsetMap, TableInfo


def named_offsets(table: TableInfo, answer: Message) -> OffsetMap:
    names = {i: name for name, i in partition_ids(table).items()}
    offsets_by_bucket = {}
    for entry in answer.get("buckets", []):
        partition = entry.get("partition_id")
        name = "" if partition is None else names.get(partition, f"{GONE_PARTITION}{partition}")
        if entry.get("offset", -1) >= 0:
            offsets_by_bucket[Bucket(name, entry.get("bucket", 0))] = entry["offset"]
    return OffsetMap(offsets_by_bucket)


def bucket_ends(
    table: TableInfo, offsets: Mapping[Bucket, int], times: Mapping[Bucket, int] | None = None
) -> list[Message]:
    """Buckets of partitions that Fluss no longer has are left out: it keeps their offsets by itself."""
    ids, times = partition_ids(table), times or {}
    return [
        {
            "partition_id": ids[b.partition] if b.partition else None,
            "bucket": b.number,
            "log_end_offset": offset,
            "max_timestamp": times.get(b),
        }
        for b, offset in sorted(offsets.items())
        if not b.partition or b.partition in ids
    ]


def gone_ends(offsets: Mapping[Bucket, int]) -> list[Message]:
    """Ends of partitions that Fluss no longer has, by the partition id in their names."""
    gone = {b: o for b, o in sorted(offsets.items()) if b.partition.startswith(GONE_PARTITION)}
    return [
        {"partition_id": int(b.partition.removeprefix(GONE_PARTITION)), "bucket": b.number, "log_end_offset": o}
        for b, o in gone.items()
    ]
