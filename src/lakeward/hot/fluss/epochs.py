# SPDX-License-Identifier: Apache-2.0
"""Fluss counts a table's epochs from 0 again each time its coordinator starts; ours never go back.

Our epoch holds both of Fluss's numbers: the coordinator's epoch above, the table's below. So it grows over restarts, and every
process that knows a round's epoch knows what Fluss must be told.
"""

from __future__ import annotations

from lakeward.model.ids import Epoch

_SHIFT = 32


def join_epoch(coordinator_epoch: int, tiering_epoch: int) -> Epoch:
    return Epoch((coordinator_epoch << _SHIFT) | tiering_epoch)


def split_epoch(epoch: Epoch) -> tuple[int, int]:
    """(coordinator's epoch, table's epoch)."""
    return epoch >> _SHIFT, epoch & ((1 << _SHIFT) - 1)
