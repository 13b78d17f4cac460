# SPDX-License-Identifier: Apache-2.0
"""Buckets, offsets, splits. A row has the address (partition, bucket, offset), never less; ranges are `[start, stop)`;
a split is one unit of writing: an offset range of a bucket, or a KV snapshot of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from lakeward.errors import InvalidRequest

PARTITION_SEPARATOR = "$"
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The partition name that Hive, and engines with its folder names, use for a null key."""


@dataclass(frozen=True, order=True)
class Bucket:
    """`partition` is "" for an unpartitioned table, else the partition's name: its values joined with `$`."""

    partition: str
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise InvalidRequest(what=f"bucket {self.number}", reason="bucket numbers start at 0")

    def __str__(self) -> str:
        return f"{self.partition}/{self.number}" if self.partition else str(self.number)

    @classmethod
    def parse(cls, text: str) -> Bucket:
        partition, _, number = text.rpartition("/")
        if not (number.isascii() and number.isdigit()):
            raise InvalidRequest(what=f"bucket {text!r}", reason="expected NUMBER or PARTITION/NUMBER")
        return cls(partition, int(number))


def partition_name(values: Sequence[str]) -> str:
    """The partition's name from its key values as text. Checked: it names folders and must read back the same."""
    for value in values:
        if (
            not value
            or PARTITION_SEPARATOR in value
            or "/" in value
            or "\\" in value
            or "\x00" in value
            or value in (".", "..")
        ):
            raise InvalidRequest(
                what=f"partition value {value!r}",
                reason="a value is not empty, not . or .., and has no $, / , \\ or NUL in it",
            )
    return PARTITION_SEPARATOR.join(values)


def partition_values(name: str) -> tuple[str, ...]:
    return tuple(name.split(PARTITION_SEPARATOR)) if name else ()


class ChangeType(IntEnum):
    APPEND = 0
    INSERT = 1
    UPDATE_BEFORE = 2
    UPDATE_AFTER = 3
    DELETE = 4

    @property
    def short(self) -> str:
        return ("+A", "+I", "-U", "+U", "-D")[self]

    @property
    def word(self) -> str:
        """In changelogs of lakes. A row that is appended is inserted."""
        return ("insert", "insert", "update_before", "update_after", "delete")[self]


@dataclass(frozen=True, order=True)
class OffsetRange:
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise InvalidRequest(what=f"range [{self.start}, {self.stop})", reason="0 <= start <= stop must hold")

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"[{self.start}, {self.stop})"


class OffsetMap(Mapping[Bucket, int]):
    """Committed offsets: bucket -> the next offset to read. A bucket that is absent was never tiered."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Mapping[Bucket, int] | None = None) -> None:
        self._offsets = dict(sorted((offsets or {}).items()))
        for bucket, offset in self._offsets.items():
            if offset < 0:
                raise InvalidRequest(what=f"offset of bucket {bucket}", reason=f"{offset} is below 0")

    def __getitem__(self, bucket: Bucket) -> int:
        return self._offsets[bucket]

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetMap) and self._offsets == other._offsets

    def __hash__(self) -> int:
        return hash(tuple(self._offsets.items()))

    def __repr__(self) -> str:
        return f"OffsetMap({ {str(b): o for b, o in self._offsets.items()} })"

    def overlaid(self, newer: Mapping[Bucket, int]) -> OffsetMap:
        """This map with `newer`'s entries in place of its own: what a round commits on top of the head's map."""
        return OffsetMap({**self._offsets, **newer})

    def raised(self, other: Mapping[Bucket, int]) -> OffsetMap:
        """Per bucket the higher of the two: adopting never lowers an offset."""
        return OffsetMap({b: max(self.get(b, 0), other.get(b, 0)) for b in {*self, *other}})

    def regressions(self, newer: Mapping[Bucket, int]) -> list[Bucket]:
        """Buckets whose offset `newer` would lower or drop."""
        return [b for b, o in self._offsets.items() if newer.get(b, -1) < o]

    def to_json(self) -> dict[str, Any]:
        """Partition -> list of [number, offset]; small for many buckets and open for new fields."""
        partitions: dict[str, list[list[int]]] = {}
        for bucket, offset in self._offsets.items():
            partitions.setdefault(bucket.partition, []).append([bucket.number, offset])
        return {"version": 1, "offsets": partitions}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> OffsetMap:
        if body.get("version") != 1 or not isinstance(body.get("offsets"), Mapping):
            raise InvalidRequest(what="offset map", reason="expected version 1 with offsets per partition")
        try:
            return cls({Bucket(p, int(n)): int(o) for p, pairs in body["offsets"].items() for n, o in pairs})
        except (TypeError, ValueError) as error:
            raise InvalidRequest(what="offset map", reason=str(error)) from error


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
