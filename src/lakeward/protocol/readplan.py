# SPDX-License-Identifier: Apache-2.0
"""The read plan: all that an engine needs to build a union read. And the token of a write: a read that has it shows
at least that write."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeward.errors import InvalidRequest
from lakeward.model import (
    DEFAULT_SIDE,
    Bucket,
    LeaseId,
    OffsetMap,
    OffsetRange,
    SideName,
    SnapshotId,
    TableId,
    TableInfo,
)


@dataclass(frozen=True, kw_only=True)
class HotRange:
    """The hot tail of a bucket: `[L, end)`. `ticket` is what Flight's `do_get` takes, base64."""

    bucket: Bucket
    range: OffsetRange
    ticket: str = ""


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """`snapshot_id` None: the lake has nothing yet. `offsets` is L per bucket, from the snapshot itself.

    Nothing under the plan is expired before `lease_ends_at_ms`; `frozen_at_ms` says how fresh the read is."""

    table: TableInfo
    lease_id: LeaseId
    lease_ends_at_ms: int
    frozen_at_ms: int
    snapshot_id: SnapshotId | None
    offsets: OffsetMap
    tails: tuple[HotRange, ...]
    flight_uri: str = ""
    lake_format: str | None = None
    lake_options: Mapping[str, str] = field(default_factory=dict)
    has_prev_offset: bool = True
    side: SideName = DEFAULT_SIDE


@dataclass(frozen=True, kw_only=True)
class WriteToken:
    """`offsets`: per bucket written to, the offset after the last record of the write."""

    table_id: TableId
    offsets: OffsetMap

    def merged(self, later: WriteToken) -> WriteToken:
        return WriteToken(table_id=later.table_id, offsets=self.offsets.raised(later.offsets))

    def __str__(self) -> str:
        body = json.dumps({"table_id": self.table_id, **self.offsets.to_json()}, separators=(",", ":"))
        return base64.urlsafe_b64encode(body.encode()).decode()

    @classmethod
    def parse(cls, text: str) -> WriteToken:
        try:
            body = json.loads(base64.urlsafe_b64decode(text.encode()))
            return cls(table_id=TableId(body["table_id"]), offsets=OffsetMap.from_json(body))
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(what="write token", reason=f"{text[:40]!r} is none: {error}") from error
