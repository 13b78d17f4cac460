# SPDX-License-Identifier: Apache-2.0
"""A split: one unit of writing. A bucket and an offset range of its log, or a KV snapshot of the bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakeward.model.bucket import Bucket
from lakeward.model.offsets import OffsetRange


@dataclass(frozen=True, kw_only=True)
class LogSplit:
    """`index` counts the sub-splits of one bucket's range from 0, in offset order."""

    bucket: Bucket
    range: OffsetRange
    index: int = 0

    @property
    def start(self) -> int:
        return self.range.start

    @property
    def stop(self) -> int:
        return self.range.stop

    def __str__(self) -> str:
        return f"log {self.bucket} {self.range}"

    def to_json(self) -> dict[str, Any]:
        return {"kind": "log", **_bucket(self.bucket), "start": self.start, "stop": self.stop, "index": self.index}


@dataclass(frozen=True, kw_only=True)
class SnapshotSplit:
    """Rows of a KV snapshot; when written, the bucket's committed offset becomes `log_offset`."""

    bucket: Bucket
    snapshot_id: str
    log_offset: int
    index: int = 0

    @property
    def start(self) -> int:
        return 0

    @property
    def stop(self) -> int:
        return self.log_offset

    def __str__(self) -> str:
        return f"snapshot {self.bucket} {self.snapshot_id} at {self.log_offset}"

    def to_json(self) -> dict[str, Any]:
        body = {"snapshot_id": self.snapshot_id, "log_offset": self.log_offset, "index": self.index}
        return {"kind": "snapshot", **_bucket(self.bucket), **body}


Split = LogSplit | SnapshotSplit


def split_from_json(body: dict[str, Any]) -> Split:
    bucket = Bucket(body["partition"], body["bucket"])
    if body["kind"] == "snapshot":
        return SnapshotSplit(
            bucket=bucket, snapshot_id=body["snapshot_id"], log_offset=body["log_offset"], index=body["index"]
        )
    return LogSplit(bucket=bucket, range=OffsetRange(body["start"], body["stop"]), index=body["index"])


def _bucket(bucket: Bucket) -> dict[str, Any]:
    return {"partition": bucket.partition, "bucket": bucket.number}
