# SPDX-License-Identifier: Apache-2.0
"""What is going to hurt, when and whom: a pure function of the seed. Same seed, same faults."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

JOB_STEPS = (
    "round.planned",
    "round.before-write",
    "split.before-read",
    "split.batch",
    "lake.before-row-group",
    "lake.after-file",
    "split.written",
    "round.written",
    "round.before-resolve",
    "lake.before-resolve",
    "lake.before-deletes",
    "lake.before-manifests",
    "round.before-lease-check",
    "round.before-lake-commit",
    "lake.before-commit",
    "lake.after-commit",
    "round.before-find",
    "round.after-lake-commit",
    "round.before-coordinator-commit",
    "round.after-coordinator-commit",
)
"""Every step of a round (design.md 6), in order. `round.before-find` is reached after a commit that was not answered.
"""

COMPACT_STEPS = (
    "compact.planned",
    "compact.before-write",
    "group.before-rewrite",
    "rewrite.written",
    "compact.written",
    "compact.before-rebase",
    "compact.before-lease-check",
    "compact.before-lake-commit",
    "compact.before-find",
    "compact.after-lake-commit",
)
"""Every step of a compaction (design.md 13), in order, but for those of the lake, which a round has as well."""

SERVER_STEPS = (
    "orphans.listed",
    "orphans.before-fence",
    "orphans.fenced",
    "orphans.before-delete",
    "orphans.deleted",
    "orphans.before-forget",
    "lake.before-delete",
    "lake.before-expire",
    "lake.after-expire",
    "hotlog.before-write",
    "hotlog.after-write",
    "hotlog.before-fsync",
    "hotlog.after-fsync",
    "hotlog.roll",
    "kv.write",
    "kv.checkpoint",
    "kv.after-append",
)
"""Steps inside the server: orphan removal, expiry, the hot store's writes."""


class FaultKind(StrEnum):
    STEP = "step"
    """At a fault point: kill, pause (a zombie) or a lost answer."""

    ZOMBIE = "zombie"
    """A job stands still between its lease check and its lake commit, for longer than a lease: it wakes up without one.
    """

    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    """Connections are reset."""

    DELAY = "delay"
    LOSE_ANSWER = "lose-answer"
    """Requests take place and their answers do not arrive."""

    NO_COORDINATOR = "no-coordinator"
    """Jobs reach the catalog and the hot store, and not the coordinator: leases end unseen."""

    CATALOG = "catalog"
    """The catalog answers 500, 409 or not at all."""

    DISK_FULL = "disk-full"
    """The server sees no free space: it refuses writes before the disk is full."""

    FULL_DISK = "full-disk"
    """The server's disk has no byte left, for real; only where a small one can be mounted."""

    DESCRIPTORS = "descriptors"
    """The server may open no more files."""

    UPKEEP = "upkeep"
    """Something ends the store's background thread from inside."""

    HOSTILE = "hostile"
    """A peer sends half, huge, idle and exploding calls to both doors."""

    CLOCK = "clock"
    """The coordinator's wall clock jumps, forth or back."""

    READ_ONLY = "read-only"
    """The lake's storage takes no writes for a while."""

    COMPACT = "compact"
    """Another engine rewrites a table's files."""

    EXPIRE = "expire"
    """Another engine expires a table's snapshots."""


TARGETS: dict[FaultKind, tuple[str, ...]] = {
    FaultKind.STEP: ("job-a", "job-b", "job-a", "job-b", "server"),
    FaultKind.ZOMBIE: ("job-a", "job-b"),
    FaultKind.KILL: ("job-a", "job-b", "server"),
    FaultKind.PAUSE: ("job-a", "job-b", "server"),
    FaultKind.CUT: ("jobs", "clients", "flight"),
    FaultKind.DELAY: ("jobs", "clients"),
    FaultKind.LOSE_ANSWER: ("jobs", "clients"),
    FaultKind.NO_COORDINATOR: ("jobs",),
    FaultKind.CATALOG: ("500", "409", "time-out"),
    FaultKind.DISK_FULL: ("server",),
    FaultKind.FULL_DISK: ("server",),
    FaultKind.DESCRIPTORS: ("server",),
    FaultKind.UPKEEP: ("server",),
    FaultKind.HOSTILE: ("server",),
    FaultKind.CLOCK: ("server",),
    FaultKind.READ_ONLY: ("lake",),
    FaultKind.COMPACT: ("log", "pk"),
    FaultKind.EXPIRE: ("log", "pk"),
}
WEIGHTS = dict.fromkeys(FaultKind, 1) | {FaultKind.STEP: 6, FaultKind.KILL: 2, FaultKind.PAUSE: 2}
SPARK_TARGETS = {FaultKind.KILL: ("executor", "python-worker"), FaultKind.PAUSE: ("executor", "python-worker")}
"""Only there is a JVM beside the driver's Python and are there Python workers."""

ACTIONS = ("kill", "pause", "lose")
AFTER_THE_CHECK = ("round.before-lake-commit", "lake.before-commit", "compact.before-lake-commit")
"""Where a zombie falls asleep."""

ZOMBIE_S = (4.5, 8.0)
"""How long, against the lab's lease of 3 s."""
FIRST_AT_S = 3.0
"""Rounds run undisturbed for as long as that: a lab that hurts nothing proves nothing."""


@dataclass(frozen=True, kw_only=True)
class PlannedFault:
    """`seconds`: how long it lasts (pauses, delays, switches). `point` and `action`: of a step. `amount`: of a clock's
    jump, in ms.
    """

    at_s: float
    kind: FaultKind
    target: str
    seconds: float = 0.0
    point: str = ""
    action: str = ""
    amount: int = 0

    def __str__(self) -> str:
        what = str(self.kind) if not self.point else f"{self.action} at {self.point}"
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        jump = f" by {self.amount / 1000:+.0f} s" if self.amount else ""
        return f"{self.at_s:6.1f} s  {what} -> {self.target}{jump}{lasting}"


def plan_faults(
    seed: int,
    seconds: float,
    kinds: Collection[FaultKind] = tuple(FaultKind),
    *,
    every_s: float = 2.0,
    spark: bool = False,
) -> tuple[PlannedFault, ...]:
    """Faults from `FIRST_AT_S` to `seconds`, on average one in `every_s`."""
    chance = random.Random(seed)  # noqa: S311 - choice of faults, not of secrets
    allowed = [k for k in FaultKind if k in kinds]
    steps = _Steps(chance)
    planned, at = [], FIRST_AT_S
    if FaultKind.ZOMBIE in allowed:  # one for certain: what it shows, no other fault does
        planned.append(_fault(chance, FaultKind.ZOMBIE, at, steps, spark))
        at += chance.uniform(0.25, 1.75) * every_s
    while at < seconds and allowed:
        kind = chance.choices(allowed, [WEIGHTS[k] for k in allowed])[0]
        planned.append(_fault(chance, kind, round(at, 1), steps, spark))
        at += chance.uniform(0.25, 1.75) * every_s
    return tuple(planned)


class _Steps:
    """Deals every step with every action before any comes again, so that a long run hits them all."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._decks: dict[bool, list[tuple[str, str]]] = {True: [], False: []}

    def deal(self, of_server: bool) -> tuple[str, str]:
        deck = self._decks[of_server]
        if not deck:
            actions = ("kill", "pause") if of_server else ACTIONS
            deck += [(p, a) for p in (SERVER_STEPS if of_server else (*JOB_STEPS, *COMPACT_STEPS)) for a in actions]
            self._chance.shuffle(deck)
        return deck.pop()


def _fault(chance: random.Random, kind: FaultKind, at_s: float, steps: _Steps, spark: bool) -> PlannedFault:
    target = chance.choice((*TARGETS[kind], *(SPARK_TARGETS.get(kind, ()) if spark else ())))
    seconds = round(chance.uniform(0.5, 6.0), 1)
    if kind is FaultKind.STEP:
        point, action = steps.deal(target == "server")
        return PlannedFault(
            at_s=at_s, kind=kind, target=target, seconds=seconds if action == "pause" else 0, point=point, action=action
        )
    if kind is FaultKind.ZOMBIE:
        asleep = round(chance.uniform(*ZOMBIE_S), 1)
        return PlannedFault(
            at_s=at_s, kind=kind, target=target, seconds=asleep, point=chance.choice(AFTER_THE_CHECK), action="pause"
        )
    if kind is FaultKind.UPKEEP:
        return PlannedFault(at_s=at_s, kind=kind, target=target, point="upkeep.task", action="end")
    if kind is FaultKind.CLOCK:
        return PlannedFault(
            at_s=at_s, kind=kind, target=target, amount=chance.choice((-3_600_000, -60_000, 60_000, 3_600_000))
        )
    momentary = kind in (FaultKind.KILL, FaultKind.CUT, FaultKind.COMPACT, FaultKind.EXPIRE)
    return PlannedFault(at_s=at_s, kind=kind, target=target, seconds=0.0 if momentary else seconds)
