# SPDX-License-Identifier: Apache-2.0
"""One bucket to check, and what a part of its check gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeward.model.bucket import Bucket
from lakeward.model.ids import SnapshotId
from lakeward.model.offsets import OffsetRange
from lakeward.model.offsetset import Offsets
from lakeward.model.table import TableInfo
from lakeward.spi.hot import LogBounds
from lakeward.verify.certificate import SHOWN, Finding, FindingKind

WINDOW_BYTES = 128 << 20
"""Bytes of rows compared at a time in depth, by the log's own estimate of a row: bounds memory at a few times this."""

MIN_ROW_BYTES = 32.0


@dataclass(frozen=True, kw_only=True)
class BucketTask:
    """`expected`: ranges a log table's bucket must hold; unused for PK tables. `bounds` None: the hot side has no such
    bucket.
    """

    table: TableInfo
    bucket: Bucket
    snapshot_id: SnapshotId
    committed: int
    expected: tuple[OffsetRange, ...]
    bounds: LogBounds | None
    deep: bool
    window_bytes: int = WINDOW_BYTES

    @property
    def window_rows(self) -> int:
        estimate = MIN_ROW_BYTES if self.bounds is None else max(MIN_ROW_BYTES, self.bounds.bytes_per_row)
        return max(1, int(self.window_bytes / estimate))

    def not_checked(self, what: str, why: str) -> str:
        return f"bucket {self.bucket}: {what} ({why})"


@dataclass(frozen=True, kw_only=True)
class Part:
    findings: tuple[Finding, ...] = ()
    compared: int = 0
    beyond: tuple[str, ...] = ()


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
