# SPDX-License-Identifier: Apache-2.0
"""The manifest of a bucket's remote log: which segments there are. Numbered files; the highest whole one counts."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import google_crc32c

from lakeward.hot.embedded.log.segment import Segment

VERSION = 1


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """`segment_id` names its folder: an upload that did not get into a manifest is never taken for another one."""

    segment_id: str
    segment: Segment

    def to_json(self) -> dict[str, Any]:
        s = self.segment
        return {
            "segment_id": self.segment_id,
            "start_offset": s.base,
            "end_offset": s.stop,
            "size_in_bytes": s.size,
            "first_timestamp": s.first_at_ms,
            "max_timestamp": s.last_at_ms,
        }

    @classmethod
    def from_json(cls, b: dict[str, Any]) -> RemoteSegment:
        facts = (b["start_offset"], b["end_offset"], b["size_in_bytes"], b["first_timestamp"], b["max_timestamp"])
        return cls(b["segment_id"], Segment(*facts))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    number: int = 0
    segments: tuple[RemoteSegment, ...] = ()

    def with_added(self, added: RemoteSegment) -> Manifest:
        kept = (*self.segments, added)
        return replace(self, number=self.number + 1, segments=tuple(sorted(kept, key=lambda s: s.segment.base)))

    def without(self, bases: set[int]) -> Manifest:
        return replace(
            self, number=self.number + 1, segments=tuple(s for s in self.segments if s.segment.base not in bases)
        )

    def to_bytes(self) -> bytes:
        body = {"version": VERSION, "number": self.number, "remote_log_segments": [s.to_json() for s in self.segments]}
        return json.dumps({"checksum": _checksum(body), "manifest": body}).encode()


def find_manifest(data: bytes) -> Manifest | None:
    """The manifest in these bytes; None when they were cut off or are none."""
    try:
        whole = json.loads(data)
        body = whole["manifest"]
        if whole["checksum"] != _checksum(body) or body["version"] != VERSION:
            return None
        segments = tuple(RemoteSegment.from_json(s) for s in body["remote_log_segments"])
    except (ValueError, KeyError, TypeError):
        return None
    return Manifest(number=body["number"], segments=segments)


def _checksum(body: dict[str, Any]) -> int:
    return int(google_crc32c.value(json.dumps(body, sort_keys=True).encode()))
