# SPDX-License-Identifier: Apache-2.0
"""What a compaction sends to executors and gets back, as versioned bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lakeward.errors import LakewardError, from_wire, to_wire
from lakeward.model.ids import RoundId
from lakeward.model.round import RoundOwner
from lakeward.model.side import COMPACT, DEFAULT_SIDE, SideName, WorkKind
from lakeward.model.table import TableInfo
from lakeward.model.versioned import pack, unpack
from lakeward.protocol.codec import decode, encode
from lakeward.protocol.heartbeat import LeaseCheck
from lakeward.spi.lake import RewriteGroup, RewriteResult
from lakeward.spi.plugins import Plugin

_ORDER, _OUTCOME, _VERSION = "rewrite-order", "rewrite-outcome", 1


@dataclass(frozen=True, kw_only=True)
class RewriteOrder:
    """`deadline_at_ms`: a group ends at the next row-group boundary after it, and does not count. `flag`: a file of the
    driver's machine that says stop."""

    kind: ClassVar[WorkKind] = COMPACT
    is_first: ClassVar[bool] = False
    min_work_s: ClassVar[float] = 0.0

    round_id: RoundId
    owner: RoundOwner
    table: TableInfo
    hot: Plugin
    lake: Plugin
    groups: tuple[RewriteGroup, ...]
    side: SideName = DEFAULT_SIDE
    deadline_at_ms: int | None = None
    flag: str | None = None
    handle: bytes = field(default=b"", repr=False)

    @property
    def lease(self) -> LeaseCheck:
        return LeaseCheck(
            job=self.owner.job,
            instance=self.owner.instance,
            table_id=self.table.table_id,
            epoch=self.owner.epoch,
            round_id=self.round_id,
            side=self.side,
            kind=self.kind,
        )

    def to_bytes(self) -> bytes:
        body = encode(self)
        return pack(_ORDER, _VERSION, body, [body.pop("handle")])

    @classmethod
    def from_bytes(cls, data: bytes) -> RewriteOrder:
        _, body, (handle,) = unpack(_ORDER, _VERSION, data)
        return decode(cls, {**body, "handle": handle})


@dataclass(frozen=True, kw_only=True)
class RewriteOutcome:
    """What became of a group, by its index. Neither `payload` nor `error`: it came due before it was done."""

    index: int
    payload: bytes | None = None
    rows: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
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

    def to_bytes(self) -> bytes:
        body = {
            "index": self.index,
            "rows": self.rows,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "seconds": self.seconds,
            "error": None if self.error is None else to_wire(self.error),
        }
        return pack(_OUTCOME, _VERSION, body, [] if self.payload is None else [self.payload])

    @classmethod
    def from_bytes(cls, data: bytes) -> RewriteOutcome:
        _, body, payloads = unpack(_OUTCOME, _VERSION, data)
        error = None if body["error"] is None else from_wire(body["error"])
        return cls(**{**body, "error": error}, payload=payloads[0] if payloads else None)
