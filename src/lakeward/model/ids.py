# SPDX-License-Identifier: Apache-2.0
"""Ids, each with a type of its own so that they cannot be mixed up."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import NewType

TableId = NewType("TableId", str)
"""Names one life of a table: drop and re-create gives another. A UUID here, Fluss's number as text there."""

RoundId = NewType("RoundId", str)
JobName = NewType("JobName", str)
InstanceId = NewType("InstanceId", str)
SnapshotId = NewType("SnapshotId", str)
"""A lake snapshot's id as the format spells it."""

LeaseId = NewType("LeaseId", str)
Epoch = NewType("Epoch", int)
NO_EPOCH = Epoch(0)
"""Before the first time a table is queued."""

_draw: Callable[[], uuid.UUID] = uuid.uuid4


def draw_ids_from(source: Callable[[], uuid.UUID]) -> Callable[[], uuid.UUID]:
    """All new ids come from `source`, until told otherwise; returns the source before. Tests that must repeat
    themselves need it: a table's id breaks ties and spreads back-offs."""
    global _draw
    before, _draw = _draw, source
    return before


def new_table_id() -> TableId:
    return TableId(str(_draw()))


def new_round_id() -> RoundId:
    return RoundId(str(_draw()))


def new_instance_id() -> InstanceId:
    return InstanceId(str(_draw()))


def new_lease_id() -> LeaseId:
    return LeaseId(str(_draw()))
