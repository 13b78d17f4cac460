# SPDX-License-Identifier: Apache-2.0
"""A write order: everything an executor needs to write one or more splits of a round, as versioned bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lakeward.model.ids import Epoch, InstanceId, JobName, RoundId, SnapshotId
from lakeward.model.round import RoundOwner
from lakeward.model.side import DEFAULT_SIDE, TIER, SideName, WorkKind
from lakeward.model.split import Split, split_from_json
from lakeward.model.table import TableInfo
from lakeward.model.versioned import pack, unpack
from lakeward.protocol.heartbeat import LeaseCheck
from lakeward.spi.plugins import Plugin

_KIND, _VERSION = "write-order", 1


@dataclass(frozen=True, kw_only=True)
class WriteOrder:
    """What a round sends to executors.

    `deadline_at_ms`: log splits stop at the next batch boundary after it, unstarted splits are skipped, but for the
    round's first order (`is_first`), which works for `min_work_s` at least: a late round still moves. `flag`: a file of
    the driver's machine that says stop. `compare_with`: the lake snapshot whose rows a KV snapshot is compared with,
    where the bucket was tiered before."""

    kind: ClassVar[WorkKind] = TIER

    round_id: RoundId
    owner: RoundOwner
    table: TableInfo
    side: SideName = DEFAULT_SIDE
    handle: bytes
    hot: Plugin
    lake: Plugin
    splits: tuple[Split, ...] = ()
    deadline_at_ms: int | None = None
    flag: str | None = None
    is_first: bool = False
    compare_with: SnapshotId | None = None
    server_wait_s: float = 300.0
    min_work_s: float = 0.0
    held_rows: int = 0
    """A PK range of at most so many offsets is read once and folded in memory; longer ones are read twice."""

    def with_splits(self, splits: tuple[Split, ...], *, is_first: bool = False) -> WriteOrder:
        return replace(self, splits=splits, is_first=is_first)

    @property
    def lease(self) -> LeaseCheck:
        owner = self.owner
        return LeaseCheck(
            job=owner.job,
            instance=owner.instance,
            table_id=self.table.table_id,
            epoch=owner.epoch,
            round_id=self.round_id,
            side=self.side,
            kind=self.kind,
        )

    def to_bytes(self) -> bytes:
        body: dict[str, Any] = {
            "round_id": self.round_id,
            "owner": {"job": self.owner.job, "instance": self.owner.instance, "epoch": self.owner.epoch},
            "table": self.table.to_json(),
            "side": str(self.side),
            "hot": {"name": self.hot.name, "options": dict(self.hot.options)},
            "lake": {"name": self.lake.name, "options": dict(self.lake.options)},
            "splits": [s.to_json() for s in self.splits],
            "deadline_at_ms": self.deadline_at_ms,
            "flag": self.flag,
            "is_first": self.is_first,
            "compare_with": self.compare_with,
            "server_wait_s": self.server_wait_s,
            "min_work_s": self.min_work_s,
            "held_rows": self.held_rows,
        }
        return pack(_KIND, _VERSION, body, [self.handle])

    @classmethod
    def from_bytes(cls, data: bytes) -> WriteOrder:
        _, body, (handle,) = unpack(_KIND, _VERSION, data)
        owner = body["owner"]
        return cls(
            round_id=RoundId(body["round_id"]),
            owner=RoundOwner(
                job=JobName(owner["job"]), instance=InstanceId(owner["instance"]), epoch=Epoch(owner["epoch"])
            ),
            table=TableInfo.from_json(body["table"]),
            side=SideName.parse(body["side"]),
            handle=handle,
            hot=Plugin(**body["hot"]),
            lake=Plugin(**body["lake"]),
            splits=tuple(split_from_json(s) for s in body["splits"]),
            deadline_at_ms=body["deadline_at_ms"],
            flag=body["flag"],
            is_first=body["is_first"],
            compare_with=body["compare_with"],
            server_wait_s=body["server_wait_s"],
            min_work_s=body["min_work_s"],
            held_rows=body["held_rows"],
        )
