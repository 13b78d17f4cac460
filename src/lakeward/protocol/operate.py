# SPDX-License-Identifier: Apache-2.0
"""Requests of operators to the coordinator and its answers: status, queue, tier-now, resyncs, admission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lakeward.errors import InvalidRequest
from lakeward.model import (
    DEFAULT_SIDE,
    Epoch,
    LedgerEntry,
    OffsetMap,
    SideName,
    TableDescriptor,
    TableId,
    TablePath,
    TableState,
)
from lakeward.protocol.views import JobStatus, TableStatus


@dataclass(frozen=True, kw_only=True)
class AdoptionStatus:
    """Progress of loading the rows of a table that is adopted with a key into the hot store. `of_rows`: their
    approximate number. `words`: why loading waits or started over. Clients ask again until `is_done`."""

    path: TablePath
    rows: int = 0
    of_rows: int = 0
    files: int = 0
    of_files: int = 0
    words: str = ""
    is_done: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CoordinatorStatus:
    """The whole, for the dashboard. `lakes`: format -> "" or why it does not answer. `figures`: plain numbers, names as
    in metrics.
    """

    coordinator_epoch: int
    now_ms: int
    tables: tuple[TableStatus, ...] = ()
    jobs: tuple[JobStatus, ...] = ()
    jobs_missing: tuple[str, ...] = ()
    pools_unserved: tuple[str, ...] = ()
    adoptions: tuple[AdoptionStatus, ...] = ()
    lakes: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class QueueEntry:
    """A side that waits for a slot, or will: `starts_at_ms` is when it must start to keep its freshness."""

    path: TablePath
    state: TableState
    epoch: Epoch
    pool: str
    priority: int
    deadline_at_ms: int | None
    starts_at_ms: int | None
    expected_round_ms: int
    slack_ms: int | None = None
    waits_since_ms: int | None = None
    retry_at_ms: int | None = None
    side: SideName = DEFAULT_SIDE


@dataclass(frozen=True, kw_only=True)
class LedgerAnswer:
    """Oldest first. `next_before`: pass it as `before` to read what lies further back; null at the beginning."""

    path: TablePath
    generation: int
    committed: OffsetMap
    entries: tuple[LedgerEntry, ...] = ()
    next_before: int | None = None
    side: SideName = DEFAULT_SIDE


@dataclass(frozen=True, kw_only=True)
class TierNowAnswer:
    """Everything acknowledged when the call came is in the lake."""

    path: TablePath
    committed: OffsetMap
    rounds: int = 0
    took_ms: int = 0


class ResyncChoice(StrEnum):
    RESYNC = "resync"
    GAP = "gap"


@dataclass(frozen=True, kw_only=True)
class ResyncTable:
    """`resync`: make the lake equal to the hot store again, after rows that are newer in the lake were loaded from it.
    `gap` (log tables): accept that rows between are in neither. `discard_newer`: newer rows are not loaded, so that the
    lake goes back to the hot store's.
    """

    choice: ResyncChoice = ResyncChoice.RESYNC
    discard_newer: bool = False


@dataclass(frozen=True, kw_only=True)
class ReconcileSchema:
    """Makes the lake table's columns and partitioning what rounds need; `dry_run`: says what that would change."""

    dry_run: bool = False
    take_over: bool = False
    """Columns that another engine added become the table's own."""


@dataclass(frozen=True, kw_only=True)
class SchemaReconciled:
    """Changes that were made in the lake table, or with a dry run would be; empty if it fits. `foreign`: columns that
    another engine added, as SQL; they stay as they are, and are in `changes` where they were taken over."""

    path: TablePath
    changes: tuple[str, ...] = ()
    dry_run: bool = False
    foreign: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RestoreLake:
    """Restores a lake table that was dropped; `anew`: creates an empty one if nothing is left of it."""

    anew: bool = False


@dataclass(frozen=True, kw_only=True)
class LakeRestored:
    """`source` is the file from which the table was restored; None: it was created empty."""

    path: TablePath
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class RebuildLake:
    """Writes the lake table again from the hot store; `discard_older`: also where the lake alone has some rows."""

    discard_older: bool = False


@dataclass(frozen=True, kw_only=True)
class AdoptTable:
    """Adopts a lake table that has snapshots of Lakeward. The descriptor is needed if the table is not in the hot
    store. `foreign`: adopts a table of another engine instead, from the named lake or the default one; its columns stay
    as they are."""

    descriptor: TableDescriptor | None = None
    foreign: bool = False
    lake: str | None = None
    primary_key: tuple[str, ...] = ()
    bucket_count: int = 1


@dataclass(frozen=True, kw_only=True)
class AdmissionQuery:
    """A what-if question: another number of slots, other freshness or durations, a table that does not exist yet. Times
    in milliseconds."""

    slots: int | None = None
    pool: str = "default"
    freshness_ms: Mapping[str, int] = field(default_factory=dict)
    round_ms: Mapping[str, int] = field(default_factory=dict)
    replay_ms: int = 0
    """Replays the arrivals of so much time, as the rounds of then show them; 0: rows arrive in every table all the
    time."""


@dataclass(frozen=True, kw_only=True)
class AdmissionRow:
    """`worst_lag_ms`: the highest lag of the simulated time; above the freshness the table breaks."""

    table: str
    freshness_ms: int
    round_ms: int
    worst_lag_ms: int
    feasible: bool
    """2 x round <= freshness: no schedule can do better than max(freshness, 2 x round)."""

    misses: int = 0


@dataclass(frozen=True, kw_only=True)
class AdmissionAnswer:
    feasible: bool
    slots: int
    utilisation: float
    rows: tuple[AdmissionRow, ...]
    words: str
    slots_needed: int | None = None
    complete: bool = True
    """False: the time for the question was over. Tables that are late are late; others may be, too."""

    simulated_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class KnownRound:
    table_id: TableId
    known: bool


MOST_SQL_CHARS, MOST_SQL_ROWS = 20_000, 1_000


@dataclass(frozen=True, kw_only=True)
class SqlQuery:
    """One SELECT over tables of this server. `mode`, `as_of` and `cut` as of any read; `rows`: at most so many come
    back."""

    query: str
    mode: str = "union"
    as_of: str | None = None
    rows: int = 200
    cut: str | None = None
    as_of_schema: bool = False
    """With the columns of that moment, in place of today's."""

    def __post_init__(self) -> None:
        if len(self.query) > MOST_SQL_CHARS:
            raise InvalidRequest(what="SqlQuery.query", reason=f"at most {MOST_SQL_CHARS} characters are allowed")
        if not 1 <= self.rows <= MOST_SQL_ROWS:
            raise InvalidRequest(what="SqlQuery.rows", reason=f"1 to {MOST_SQL_ROWS} is allowed")
