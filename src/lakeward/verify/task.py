# SPDX-License-Identifier: Apache-2.0
"""One bucket to check, and what a part of its check gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeward.model import DEFAULT_SIDE, Bucket, OffsetRange, Offsets, SideName, SnapshotId, TableInfo, side_table
from lakeward.spi import LogBounds
from lakeward.verify.certificate import SHOWN, Finding, FindingKind

WINDOW_BYTES = 128 << 20
"""Bytes of rows compared at a time in depth, by the log's own estimate of a row: bounds memory at a few times this."""

MIN_ROW_BYTES = 32.0

SLICES = 100
"""A bucket is cut into about so many pieces before a sample is taken of them."""

Window = tuple[int, int]
"""Offsets `[start, stop)` that are compared at a time."""


@dataclass(frozen=True, kw_only=True)
class BucketTask:
    """`expected`: ranges a log table's bucket must hold; unused for PK tables. `bounds` None: the hot side has no such
    bucket. `mixed`: the snapshot has files that do not say their bucket. `sample`: the share of rows whose values are
    compared; all of them are counted."""

    table: TableInfo
    bucket: Bucket
    snapshot_id: SnapshotId
    committed: int
    expected: tuple[OffsetRange, ...]
    bounds: LogBounds | None
    deep: bool
    window_bytes: int = WINDOW_BYTES
    mixed: bool = False
    sample: float = 1.0
    seed: int = 0
    side: SideName = DEFAULT_SIDE
    floor: int = 0
    """Rows below it may be gone: a changelog does not keep them that long."""

    @property
    def lake_table(self) -> TableInfo:
        """As the side's lake has it."""
        return side_table(self.table, self.side)

    @property
    def window_rows(self) -> int:
        estimate = MIN_ROW_BYTES if self.bounds is None else max(MIN_ROW_BYTES, self.bounds.bytes_per_row)
        return max(1, int(self.window_bytes / estimate))

    def sampled(self, windows: Sequence[Window]) -> list[Window]:
        """Those whose values are compared: all, or at least one that the seed picks."""
        if self.sample >= 1 or not windows:
            return list(windows)
        slices = [part for window in windows for part in _cut(window, SLICES // len(windows) + 1)]
        chosen = random.Random(f"{self.seed} {self.bucket}").sample(  # noqa: S311 - a sample, not a secret
            range(len(slices)), max(1, round(len(slices) * self.sample))
        )
        return [slices[at] for at in sorted(chosen)]

    def not_checked(self, what: str, why: str) -> str:
        return f"bucket {self.bucket}: {what} ({why})"


@dataclass(frozen=True, kw_only=True)
class Part:
    findings: tuple[Finding, ...] = ()
    rows: int = 0
    compared: int = 0
    beyond: tuple[str, ...] = ()


def _cut(window: Window, pieces: int) -> list[Window]:
    step = max(1, -(-(window[1] - window[0]) // pieces))
    return [(at, min(at + step, window[1])) for at in range(window[0], window[1], step)]


def altered(bucket: Bucket, parts: Sequence[Offsets]) -> list[Finding]:
    at = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    if not len(at):
        return []
    shown = tuple(int(o) for o in at[:SHOWN])
    return [
        Finding(
            kind=FindingKind.ALTERED,
            bucket=bucket,
            count=len(at),
            offsets=shown,
            words=f"{len(at)} rows differ from the hot store",
        )
    ]


def as_table(batches: Sequence[pa.RecordBatch]) -> pa.Table | None:
    if not batches:
        return None
    names = batches[0].schema.names
    return pa.concat_tables([pa.Table.from_batches([b.select(names)]) for b in batches], promote_options="permissive")
