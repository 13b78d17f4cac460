# SPDX-License-Identifier: Apache-2.0
"""Facts of a Fluss table that every lake format needs: the numbers of its partitions, and offsets in the form of
Fluss's offsets files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lakeward.model import FLUSS_PARTITIONS, GONE_PARTITION, Bucket, OffsetMap, TableDescriptor

FlussPartitions = Mapping[str, str]
"""Partition id -> name."""


_PATH = re.compile(r"-(\d+)/metadata/[^/]+\.offsets$")


def table_id_in(path: str) -> str | None:
    """Returns the id of the table whose offsets are stored at this path. The file itself is deleted once a newer
    snapshot is registered with Fluss."""
    named = _PATH.search(path)
    return named.group(1) if named else None


def find_partitions(descriptor: TableDescriptor) -> FlussPartitions | None:
    """Those of a table of a Fluss cluster; None for any other table."""
    text = descriptor.properties.get(FLUSS_PARTITIONS)
    return None if text is None else dict(json.loads(text))


def is_of_fluss(descriptor: TableDescriptor) -> bool:
    """True if a Fluss cluster holds the table. Its rows are replaced by key, and their offsets are never looked up."""
    return FLUSS_PARTITIONS in descriptor.properties


def decode_fluss_offsets(body: Mapping[str, Any], partitions: FlussPartitions | None) -> OffsetMap:
    """Fluss's own offsets file; -1 is unknown. Its partitions have numbers; one that Fluss no longer has keeps its
    number.
    """
    if "partition_offsets" in body:
        pairs = [(str(p["partition_id"]), p["bucket_offsets"]) for p in body["partition_offsets"]]
        names = {i: i if partitions is None else partitions.get(i, f"{GONE_PARTITION}{i}") for i, _ in pairs}
        by_bucket = {(names[i], n): o for i, offsets in pairs for n, o in enumerate(offsets)}
    else:
        by_bucket = {("", n): o for n, o in enumerate(body.get("bucket_offsets", []))}
    return OffsetMap({Bucket(partition, n): int(o) for (partition, n), o in by_bucket.items() if int(o) >= 0})


def encode_fluss_offsets(table_id: str, offsets: OffsetMap, partitions: FlussPartitions) -> dict[str, Any]:
    """The inverse: the shape of Fluss's offsets file, by partition number."""
    ids = {name: i for i, name in partitions.items()}
    lists: dict[str, list[int]] = {}
    for bucket, offset in offsets.items():
        numbers = lists.setdefault(bucket.partition, [])
        numbers += [-1] * (bucket.number + 1 - len(numbers))
        numbers[bucket.number] = offset
    head: dict[str, Any] = {"version": 1, "table_id": int(table_id)}
    if set(lists) <= {""}:
        return {**head, "bucket_offsets": lists.get("", [])}
    numbered = {
        int(ids.get(name) or name.removeprefix(GONE_PARTITION)): bucket_offsets
        for name, bucket_offsets in lists.items()
    }
    return {**head, "partition_offsets": [{"partition_id": i, "bucket_offsets": numbered[i]} for i in sorted(numbered)]}
