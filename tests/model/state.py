# SPDX-License-Identifier: Apache-2.0
"""One state of the world: the lake, the coordinator, and where every actor stands. Frozen, hashable, compared as a
whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from tests.model.world import BUDGET

Row = tuple[int, int]
"""(bucket, record offset)"""
File = tuple[str, tuple[Row, ...]]
"""(name, rows). The name begins with its writer."""
Delete = tuple[File, Row]
Offsets = tuple[int, ...]
"""Per bucket, counted in batches: splits are cut at batch boundaries only."""
Files = frozenset[File]
NO_FILES: Files = frozenset()
Harm = tuple[int, int]
"""(bucket, the foreign snapshot that deleted its rows)"""


class EqualityDelete(NamedTuple):
    rows: frozenset[Row]
    """Every row, ever, of the key that it deletes."""
    sequence: int
    """It applies to files with a lower one."""


class Snap(NamedTuple):
    id: int
    """Grows, so it doubles as sequence number."""
    parent: int | None
    who: str
    """round, fence, compact (ours); flink; foreign"""
    token: str | None
    offs: Offsets
    """Of a `foreign` one only the oracle may look at this."""
    fence: int
    files: Files
    dels: frozenset[Delete]
    eqs: frozenset[EqualityDelete] = frozenset()
    ages: frozenset[tuple[File, int]] = frozenset()
    """Sequence numbers of the files, where equality deletes can come."""
    generation: int = 0
    is_resyncing: bool = False
    """It says that its generation has buckets that were not compared yet."""
    harm: frozenset[Harm] = frozenset()
    """History, for the invariants only: what other engines deleted and no resync has brought back."""


class Base(NamedTuple):
    """What reconcile says, and work is planned on."""

    offs: Offsets
    token: str | None
    fence: int
    generation: int = 0
    is_resyncing: bool = False


class Req(NamedTuple):
    """A lake commit request."""

    who: str
    head: int | None
    tag: int | None
    token: str | None
    offs: Offsets
    fence: int
    add: Files = NO_FILES
    drop: Files = NO_FILES
    dels: frozenset[Delete] = frozenset()
    eqs: frozenset[frozenset[Row]] = frozenset()
    sequence: int | None = None
    """Of the added files; None: the new snapshot's."""
    generation: int = 0
    is_resyncing: bool = False
    left: frozenset[int] = frozenset()
    """Of a resync, for the report: buckets that are still to be compared."""
    cured: frozenset[Harm] = frozenset()
    lease: str | None = None
    """The round whose lease the catalog checks when it takes the request; None: it checks none."""


class Part(NamedTuple):
    """What a sub-split wrote."""

    bucket: int
    start: int
    stop: int
    file: File | None
    replaced: tuple[Row, ...]


class Job(NamedTuple):
    phase: str = "idle"
    rnd: str | None = None
    base: Base | None = None
    ends: Offsets = ()
    parts: tuple[Part, ...] = ()
    req: Req | None = None
    compare: frozenset[int] | None = None
    """Of a resync: the buckets to compare; None in every other round."""
    generation: int = 0
    """... the one that it begins."""
    head: Snap | None = None
    """... the snapshot to compare with."""
    seen: tuple[int | None, int | None] = (None, None)
    """Head and tag of the plan, where the commit may be prepared on them."""
    is_sent: bool = False
    """Its request was sent before, and no answer came."""


class Group(NamedTuple):
    inputs: Files
    output: File | None
    """What is left of their rows in the planned snapshot; None where nothing is."""
    oldest: int
    """The lowest sequence number of the inputs."""
    applied: frozenset[Delete]
    """Deletes of the planned snapshot, which its output is without."""


class Compaction(NamedTuple):
    phase: str = "idle"
    name: str | None = None
    base: Base | None = None
    planned: int = 0
    """The snapshot it reads."""
    groups: tuple[Group, ...] = ()
    req: Req | None = None


class Intent(NamedTuple):
    owner: str
    token: str | None
    fence: int


class Removal(NamedTuple):
    """Orphan removal under way."""

    intent: Intent
    victims: Files | None
    listed: bool


class State(NamedTuple):
    ends: Offsets
    snaps: tuple[Snap, ...] = ()
    """Retained ones."""
    head: int | None = None
    tag: int | None = None
    files: Files = NO_FILES
    """That exist."""
    lease: str | None = None
    """The round that holds the lease of kind `tier`. It may go at any moment: expiry, supersession, restarts."""
    clease: str | None = None
    """The compaction that holds the lease of kind `compact`."""
    committed: Offsets = ()
    """The coordinator's."""
    ledger: frozenset[str] = frozenset()
    intents: frozenset[Intent] = frozenset()
    closed: frozenset[str] = frozenset()
    """Compactions whose intent is recorded as committed."""
    gc: Removal | None = None
    jobs: tuple[Job, ...] = ()
    comps: tuple[Compaction, ...] = ()
    wire: frozenset[Req] = frozenset()
    """Requests still travelling."""
    reader: tuple[str, Snap] | None = None
    exp: tuple[str, frozenset[int], Files] | None = None
    """Our expiry under way."""
    flink: tuple[Offsets, Offsets] | None = None
    """A paused Flink job: (start, stop)."""
    generation: int = 0
    resync: frozenset[int] | None = None
    """The coordinator's: buckets still to be compared; None where no resync is asked for."""
    cut: Offsets | None = None
    """The log's ends at the newest cut."""
    budget: tuple[int, ...] = ()
    nsnap: int = 0
    landed: frozenset[str] = frozenset()
    """History, for the invariants only: rounds whose commit took effect."""
    gave_up: frozenset[str] = frozenset()
    """... rounds that their job declared lost."""
    told: frozenset[Harm] = frozenset()
    """... what a resync was asked for to bring back."""
    flags: frozenset[str] = frozenset()
    """... what went wrong outside: rolled, dbloss; "at the cut": a snapshot was; "! ..." is a violation."""

    def left(self, what: str) -> int:
        return self.budget[BUDGET.index(what)]

    def spend(self, what: str) -> State:
        i = BUDGET.index(what)
        return self._replace(budget=(*self.budget[:i], self.budget[i] - 1, *self.budget[i + 1 :]))

    def flag(self, what: str) -> State:
        return self._replace(flags=self.flags | {what})

    def with_job(self, i: int, job: Job) -> State:
        return self._replace(jobs=(*self.jobs[:i], job, *self.jobs[i + 1 :]))

    def with_compaction(self, i: int, comp: Compaction) -> State:
        return self._replace(comps=(*self.comps[:i], comp, *self.comps[i + 1 :]))

    def head_snap(self) -> Snap:
        return next((n for n in self.snaps if n.id == self.head), EMPTY)

    def used(self) -> Files:
        return NO_FILES.union(*(n.files for n in self.snaps))


Steps = Iterator[tuple[str, State]]
"""What may happen next: (what it is called, the state after it)."""
EMPTY = Snap(0, None, "none", None, (), 0, NO_FILES, frozenset())


@lru_cache(None)
def visible(n: Snap) -> list[Row]:
    """The rows that a reader of this snapshot sees."""
    rows = [(f, row) for f in n.files for row in f[1] if (f, row) not in n.dels]
    if n.eqs:
        ages = dict(n.ages)
        rows = [(f, row) for f, row in rows if not any(row in e.rows and ages[f] < e.sequence for e in n.eqs)]
    return sorted(row for _, row in rows)
