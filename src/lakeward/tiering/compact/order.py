# SPDX-License-Identifier: Apache-2.0
"""Orders of a compaction to executors and their results, as versioned bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lakeward.errors import LakewardError
from lakeward.model import WorkKind
from lakeward.model.side import COMPACT
from lakeward.protocol.codec import Packed
from lakeward.spi import RewriteGroup, RewriteResult
from lakeward.tiering.work.order import Order


@dataclass(frozen=True, kw_only=True)
class RewriteOrder(Order):
    """Groups to rewrite. One that is not done by the deadline does not count."""

    packed_as: ClassVar = ("rewrite-order", 2)
    kind: ClassVar[WorkKind] = COMPACT

    groups: tuple[RewriteGroup, ...]


@dataclass(frozen=True, kw_only=True)
class RewriteOutcome(Packed):
    """Result of a group, by its index. Neither `payload` nor `error`: its deadline passed before it was done."""

    packed_as: ClassVar = ("rewrite-outcome", 3)

    index: int
    payload: bytes | None = None
    rows: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    error: LakewardError | None = None

    def result(self, group: RewriteGroup) -> RewriteResult | None:
        if self.payload is None:
            return None
        return RewriteResult(
            group=group,
            payload=self.payload,
            rows=self.rows,
            bytes_read=self.bytes_read,
            bytes_written=self.bytes_written,
        )
