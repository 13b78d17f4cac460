# SPDX-License-Identifier: Apache-2.0
"""The coordinator's record of a lake's state."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakeward.model import DEFAULT_SIDE, Bucket, OffsetMap, SideName, TableId


@dataclass(frozen=True, kw_only=True)
class Committed:
    """`token`: the newest round that the lake has. `resync`: an operator accepted the lake as it is, and the next round
    brings it up to date from there. `to_compare`: the buckets that are left of it; None: all."""

    table_id: TableId
    offsets: OffsetMap = field(default_factory=OffsetMap)
    token: str | None = field(default=None, metadata={"was": "round_id"})
    generation: int = 0
    side: SideName = DEFAULT_SIDE
    resync: bool = False
    to_compare: tuple[Bucket, ...] | None = None
