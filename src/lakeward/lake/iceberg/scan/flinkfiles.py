# SPDX-License-Identifier: Apache-2.0
"""Offsets of files that Fluss's Flink job added to a clean log table, which say nothing of them: a log has no hole, and
the job commits each bucket's rows in order, so that counts tell.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.table.metadata import TableMetadata

from lakeward.lake.iceberg.meta.foreign import ADOPTED
from lakeward.lake.iceberg.meta.layout import is_clean
from lakeward.lake.iceberg.meta.summary import summary_of
from lakeward.lake.iceberg.scan.files import IndexedFile
from lakeward.model import PARTITION_SEPARATOR, Bucket
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY

_NAME = re.compile(r"/(\d{5,})-\d+-[0-9a-f-]{36}(-\d{5,})?\.[a-z]+$")
"""Iceberg's own names of files begin with the number of the writer's task, which is the bucket's here."""


def count_offsets(
    metadata: TableMetadata, files: Sequence[IndexedFile], partitions: Sequence[tuple[str, ...] | None]
) -> list[IndexedFile]:
    """The files with bucket and offsets, as far as they can be told. `partitions`: the values of each file's partition,
    None where its spec has not all of them."""
    schema = metadata.schema()
    if not is_clean(schema) or schema.identifier_field_ids or ADOPTED in metadata.properties:
        return list(files)
    named = [_with_bucket(metadata, f, p) for f, p in zip(files, partitions, strict=True)]
    by_bucket: dict[Bucket, list[int]] = defaultdict(list)
    for at, file in enumerate(named):
        if file.bucket is not None and (file.first is not None or _is_of_flink(metadata, file)):
            by_bucket[file.bucket].append(at)
    for places in by_bucket.values():
        in_order = sorted(places, key=lambda at: (named[at].entry.sequence_number or 0, named[at].first or 0, at))
        counted = count_on([named[at] for at in in_order])
        for at, file in zip(in_order, counted, strict=True):
            named[at] = file
    return named


def count_on(files: Sequence[IndexedFile]) -> list[IndexedFile]:
    """One bucket's files in the order of their commits: those without offsets follow the one before, or lead up to the
    first one that has some. Pure."""
    counted: list[IndexedFile] = []
    known = next((at for at, f in enumerate(files) if f.first is not None), len(files))
    leading = sum(f.file.record_count for f in files[:known])
    start = files[known].first or 0 if known < len(files) else leading
    following = start - leading
    for file in files:
        if file.first is None or file.last is None:
            file = replace(file, first=following, last=following + file.file.record_count - 1)
        assert file.last is not None
        counted.append(file)
        following = file.last + 1
    return counted


def _with_bucket(metadata: TableMetadata, file: IndexedFile, partition: tuple[str, ...] | None) -> IndexedFile:
    name = _NAME.search(file.file.file_path) if file.bucket is None and partition is not None else None
    if name is None or partition is None or not _is_of_flink(metadata, file):
        return file
    return replace(file, bucket=Bucket(PARTITION_SEPARATOR.join(partition), int(name.group(1))))


def _is_of_flink(metadata: TableMetadata, file: IndexedFile) -> bool:
    """By the snapshot that added it; where that is expired, by the look of its name."""
    snapshot = metadata.snapshot_by_id(file.entry.snapshot_id or -1)
    if snapshot is None:
        return _NAME.search(file.file.file_path) is not None
    return summary_of(snapshot).get(COMMIT_USER_KEY) == COMMIT_USER
