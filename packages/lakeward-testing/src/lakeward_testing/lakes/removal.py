# SPDX-License-Identifier: Apache-2.0
"""Orphan removal as a contract test needs it: every file is old enough and nobody holds the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.lake.orphans import OrphanOptions, OrphanRemoval
from lakeward.model import TIER, Intent, WorkKind
from lakeward.spi import LakeStorage
from lakeward_testing.clock import ManualClock
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.scripted_log import ScriptedLog

LATER_MS = 4_000_000_000_000
"""Long after anything that a test makes."""


def intent_of(lake_round: LakeRound, at_ms: int = 0, kind: WorkKind = TIER) -> Intent:
    return Intent(
        round_id=lake_round.round_id,
        table_id=lake_round.table.table_id,
        prefix=lake_round.committer.prefix(lake_round.round_id),
        token=lake_round.base.token,
        fence=lake_round.base.fence,
        recorded_at_ms=at_ms,
        kind=kind,
    )


def removal_of(lake: LakeStorage, log: ScriptedLog) -> OrphanRemoval:
    """At a time when every file is old enough, with nobody holding the table."""
    return OrphanRemoval(
        lake, log.table, clock=ManualClock(LATER_MS), options=OrphanOptions(), hold=_unleased, adopt=lambda base: None
    )


@contextmanager
def _unleased() -> Iterator[bool]:
    yield True
