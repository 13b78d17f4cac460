# SPDX-License-Identifier: Apache-2.0
"""Fluss counts a table's epochs from 0 again each time its coordinator starts. Our epoch holds both of Fluss's numbers:
the coordinator's epoch above, the table's below. Every process that knows a round's epoch knows what Fluss must be
told.

From 1.0 on the coordinator's epoch grows with each start, and so does ours. In 0.9 it is always 0: a round from before
a restart may have the number of one from after it, and Fluss takes both for the same. What they write is kept apart by
the lake's precondition.
"""

from __future__ import annotations

from lakeward.model import Epoch

_SHIFT = 32


def join_epoch(coordinator_epoch: int, tiering_epoch: int) -> Epoch:
    return Epoch((coordinator_epoch << _SHIFT) | tiering_epoch)


def split_epoch(epoch: Epoch) -> tuple[int, int]:
    """(coordinator's epoch, table's epoch)."""
    return epoch >> _SHIFT, epoch & ((1 << _SHIFT) - 1)
