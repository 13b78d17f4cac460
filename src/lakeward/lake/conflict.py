# SPDX-License-Identifier: Apache-2.0
"""A commit that came too late: did one of ours win, or did somebody else's come between?"""

from __future__ import annotations

from collections.abc import Callable

from lakeward.errors import CommitConflict, LakewardError
from lakeward.model import LakeBase, RoundId
from lakeward.spi import Precondition


def describe_conflict(
    table: str, round_id: RoundId, reason: str, precondition: Precondition, load_base: Callable[[], LakeBase]
) -> CommitConflict:
    """`load_base`: the table as it is now. Where that cannot be told, the round may try again."""
    try:
        lost = precondition.breach(load_base()) is not None
    except LakewardError:
        lost = False
    return CommitConflict(table=table, round_id=round_id, reason=reason, lost=lost)
