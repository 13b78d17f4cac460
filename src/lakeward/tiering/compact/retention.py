# SPDX-License-Identifier: Apache-2.0
"""How long a changelog keeps its rows: which data files are over their time, and which may become one (pure, but for
the look at when rows of a file were written)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.changelog.columns import offsets_of
from lakeward.config.config import Config
from lakeward.config.options import TABLE_DATALAKE_CHANGELOG_RETENTION
from lakeward.model import (
    OFFSET,
    RETENTION_PROPERTY,
    TIMESTAMP,
    Bucket,
    OffsetRange,
    SnapshotId,
    TableInfo,
    is_changelog,
)
from lakeward.spi import LakeFile, LakeReader

WINDOWS = 8
"""Files are merged within an eighth of the retention: a larger one would keep old rows as long as its newest."""

_KEPT = 100_000
_NEWEST: dict[str, int] = {}


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Retention of one changelog at one moment. `newest_ms`: when the newest row of a file was written, by its path."""

    keep_ms: int
    now_ms: int
    newest_ms: Mapping[str, int] = field(default_factory=dict)

    def over(self, files: Iterable[LakeFile]) -> dict[Bucket, tuple[LakeFile, ...]]:
        """Per bucket the oldest files of which all rows are past their time. Empty for a bucket with a file of unknown
        offsets or times."""
        buckets: dict[Bucket | None, list[LakeFile]] = defaultdict(list)
        for file in files:
            buckets[file.bucket].append(file)
        over = {
            bucket: tuple(takewhile(self._is_over, sorted(of_bucket, key=_start)))
            for bucket, of_bucket in buckets.items()
            if bucket is not None and all(f.path in self.newest_ms for f in of_bucket)
        }
        return {bucket: expired_files for bucket, expired_files in over.items() if expired_files}

    def _is_over(self, file: LakeFile) -> bool:
        return self.newest_ms[file.path] < self.now_ms - self.keep_ms

    def windows(self, files: Iterable[LakeFile]) -> list[list[LakeFile]]:
        """Files that may be merged with each other."""
        width, found = max(1, self.keep_ms // WINDOWS), defaultdict[int, list[LakeFile]](list)
        for file in files:
            found[self.newest_ms.get(file.path, -1) // width].append(file)
        return [found[number] for number in sorted(found)]


def dropped_ranges(
    over: Mapping[Bucket, Sequence[LakeFile]], files: Iterable[LakeFile], ends: Mapping[Bucket, int]
) -> dict[Bucket, OffsetRange]:
    """Offsets that are gone with these files: up to the first row that stays, or to the bucket's end."""
    gone, kept = {f.path for of_bucket in over.values() for f in of_bucket}, defaultdict[Bucket, list[int]](list)
    for file in files:
        if file.bucket is not None and file.path not in gone:
            kept[file.bucket].append(_start(file))
    stops = {b: min(kept[b], default=max(ends.get(b, 0), _start(of_bucket[-1]))) for b, of_bucket in over.items()}
    return {b: OffsetRange(_start(of_bucket[0]), stops[b]) for b, of_bucket in over.items()}


def load_retention(
    table: TableInfo, reader: LakeReader, snapshot_id: SnapshotId, files: Sequence[LakeFile], now_ms: int
) -> Retention | None:
    """`table` is a side's lake table. None: it keeps its rows for ever."""
    if not is_changelog(table.schema) or RETENTION_PROPERTY not in table.descriptor.properties:
        return None
    keep = Config().for_table(table.descriptor.properties).get(TABLE_DATALAKE_CHANGELOG_RETENTION)
    if keep is None:
        return None
    newest = load_newest(reader, snapshot_id, files)
    return Retention(keep_ms=round(keep.total_seconds() * 1_000), now_ms=now_ms, newest_ms=newest)


def load_newest(reader: LakeReader, snapshot_id: SnapshotId, files: Sequence[LakeFile]) -> dict[str, int]:
    """When the newest row of each file was written, at the latest; files without known offsets are left out. Two
    columns are read. Files never change: each is looked at once."""
    if len(_NEWEST) > _KEPT:
        _NEWEST.clear()
    unknown: dict[Bucket, list[LakeFile]] = defaultdict(list)
    for file in files:
        if file.bucket is not None and file.offsets is not None and file.path not in _NEWEST:
            unknown[file.bucket].append(file)
    for bucket, of_bucket in unknown.items():
        newest_offsets = dict.fromkeys((f.path for f in of_bucket), 0)
        for path, at_ms in _scan_times(reader, snapshot_id, bucket, of_bucket):
            newest_offsets[path] = max(newest_offsets[path], at_ms)
        _NEWEST.update(newest_offsets)
    return {f.path: _NEWEST[f.path] for f in files if f.path in _NEWEST}


def _scan_times(
    reader: LakeReader, snapshot_id: SnapshotId, bucket: Bucket, files: Sequence[LakeFile]
) -> Iterator[tuple[str, int]]:
    ranges = [(f.path, f.offsets) for f in files if f.offsets is not None]
    start, stop = min(r.start for _, r in ranges), max(r.stop for _, r in ranges)
    inside = (pc.field(OFFSET) >= start) & (pc.field(OFFSET) < stop)
    for batch in reader.scan(snapshot_id, columns=[OFFSET, TIMESTAMP], filter=inside, buckets=[bucket]):
        offsets = offsets_of(batch)
        times = batch.column(TIMESTAMP).cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_numpy()
        for path, held in ranges:
            mine = times[(offsets >= held.start) & (offsets < held.stop)]
            if len(mine):
                yield path, int(mine.max())


def _start(file: LakeFile) -> int:
    return -1 if file.offsets is None else file.offsets.start
