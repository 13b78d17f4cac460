# SPDX-License-Identifier: Apache-2.0
"""What writing a split came to. Tasks return this as bytes: a raised exception would reach the driver as text only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakeward.errors import LakewardError, from_wire, to_wire
from lakeward.model.offsetset import OffsetSet
from lakeward.model.split import Split, split_from_json
from lakeward.model.versioned import pack, unpack

_KIND, _VERSION = "write-outcome", 2


@dataclass(frozen=True, kw_only=True)
class WriteOutcome:
    """`stop` is how far the split got: its own stop, or a batch boundary before it when it was stopped early.

    `result` is the lake writer's WriteResult (None: no row was left to write); `replaced` holds the offsets below the
    split's start that its records replaced, `renewed` those whose rows in the lake go because the split wrote them
    again (a resync found them altered or doubled). `error` set means that the split failed and the rest does not count.
    """

    split: Split
    stop: int
    attempt: int = 0
    result: bytes | None = None
    replaced: OffsetSet = field(default_factory=OffsetSet)
    renewed: OffsetSet = field(default_factory=OffsetSet)
    rows: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    error: LakewardError | None = None

    @property
    def is_ok(self) -> bool:
        return self.error is None

    @property
    def is_whole(self) -> bool:
        return self.is_ok and self.stop == self.split.stop

    def to_bytes(self) -> bytes:
        body: dict[str, Any] = {
            "split": self.split.to_json(),
            "stop": self.stop,
            "attempt": self.attempt,
            "has_result": self.result is not None,
            "rows": self.rows,
            "bytes_read": self.bytes_read,
            "seconds": self.seconds,
            "error": None if self.error is None else to_wire(self.error),
        }
        return pack(_KIND, _VERSION, body, [self.result or b"", self.replaced.to_bytes(), self.renewed.to_bytes()])

    @classmethod
    def from_bytes(cls, data: bytes) -> WriteOutcome:
        _, body, (result, replaced, *renewed) = unpack(_KIND, _VERSION, data)
        return cls(
            split=split_from_json(body["split"]),
            stop=body["stop"],
            attempt=body["attempt"],
            result=result if body["has_result"] else None,
            replaced=OffsetSet.from_bytes(replaced),
            renewed=OffsetSet.from_bytes(renewed[0]) if renewed else OffsetSet(),
            rows=body["rows"],
            bytes_read=body["bytes_read"],
            seconds=body["seconds"],
            error=None if body["error"] is None else from_wire(body["error"]),
        )
