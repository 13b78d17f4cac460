# SPDX-License-Identifier: Apache-2.0
"""Outcome of writing a split. Tasks return it as bytes: a raised exception would reach the driver only as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lakeward.changelog.rowsum import RowSum
from lakeward.errors import LakewardError
from lakeward.model import OffsetSet, RoundId, SideName, Split
from lakeward.protocol.codec import Packed

NO_ROUND = RoundId("")


@dataclass(frozen=True, kw_only=True)
class WriteOutcome(Packed):
    """`stop` is how far the split got: its own stop, or a batch boundary before it when it was stopped early.

    `result` is the lake writer's WriteResult (None: no row was left to write); `replaced` holds the offsets below the
    split's start that its records replaced, `renewed` those whose rows in the lake go because the split wrote them
    again (a resync found them altered or doubled). `error` set means that the split failed and the rest does not count.
    """

    packed_as: ClassVar = ("write-outcome", 5)

    split: Split
    stop: int
    attempt: int = 0
    round_id: RoundId = NO_ROUND
    """Whose split it is: a task may write for rounds of several sides."""

    result: bytes | None = None
    replaced: OffsetSet = field(default_factory=OffsetSet)
    renewed: OffsetSet = field(default_factory=OffsetSet)
    read_with: tuple[SideName, ...] = ()
    """Sides whose writers got their rows from the same read of the log."""

    sums: RowSum | None = None
    """Hashes of the written rows; None if the table has no certificates, and for a comparison with the lake."""

    rows: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    error: LakewardError | None = None

    @property
    def is_ok(self) -> bool:
        return self.error is None

    @property
    def is_whole(self) -> bool:
        return self.is_ok and self.stop == self.split.stop
