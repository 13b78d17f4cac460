# SPDX-License-Identifier: Apache-2.0
"""Offsets per bucket: ranges `[start, stop)` and maps of committed offsets, with their JSON form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakeward.errors import InvalidRequest
from lakeward.model.bucket import Bucket


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
