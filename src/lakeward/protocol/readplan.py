# SPDX-License-Identifier: Apache-2.0
"""The read plan: what any engine needs to build a union read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeward.model import DEFAULT_SIDE, Bucket, LeaseId, OffsetMap, OffsetRange, SideName, SnapshotId, TableInfo


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
