# SPDX-License-Identifier: Apache-2.0
"""The search: every state that a world can reach, shortest way first, until an invariant breaks or a limit is met."""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.model.compactions import compaction_steps
from tests.model.invariants import Invariants, Violation
from tests.model.lake import AT_CUT, Lake
from tests.model.orphans import orphan_steps
from tests.model.others import other_steps
from tests.model.readers import expiry_steps, reader_steps
from tests.model.rounds import end_leased, round_steps
from tests.model.rules import Rules
from tests.model.state import Compaction, Job, Req, State, Steps
from tests.model.world import BUDGET, World


class Outcome(NamedTuple):
    violation: str | None
    states: int
    depth: int
    whole: bool
    """False: the limit was met before every state was seen."""
    seconds: float
    trace: list[str]
    """The steps to the violation."""


def search(world: World, rules: Rules, limit: int) -> Outcome:
    lake = Lake(world, rules)
    invariants, begun = Invariants(lake), time.monotonic()
    start = initial(lake)
    came: dict[State, tuple[State, str] | None] = {start: None}
    level, depth = [start], 0
    while level and len(came) < limit:
        depth, following = depth + 1, []
        for s in level:
            for label, t in steps(lake, s):
                t = ordered(t)
                if t in came:
                    continue
                came[t] = (s, label)
                try:
                    invariants.check(s, t)
                except Violation as violation:
                    seconds = time.monotonic() - begun
                    return Outcome(str(violation), len(came), depth, False, seconds, trace(came, t))
                following.append(t)
            if len(came) >= limit:
                break
        level = following
    return Outcome(None, len(came), depth, len(came) < limit, time.monotonic() - begun, [])


def initial(lake: Lake) -> State:
    w, buckets = lake.w, len(lake.w.log)
    s = State(
        ends=(w.first,) * buckets,
        committed=(w.tiered,) * buckets,
        jobs=(Job(),) * w.slots,
        comps=(Compaction(),) * (w.compactors if w.compactions else 0),
        budget=tuple(getattr(w, what) for what in BUDGET),
    )
    if not w.tiered:
        return s
    files = frozenset((f"r0.{b}.0", lake.fold(b, 0, w.tiered, w.tiered)[0]) for b in range(buckets))
    landed = lake.land(s, Req("round", None, None, "r0", s.committed, 0, files))
    assert landed is not None
    return landed._replace(files=files, ledger=frozenset({"r0"}))


def ordered(s: State) -> State:
    """Slots are interchangeable: states that differ by a swap are one state."""
    jobs = tuple(sorted(s.jobs, key=lambda j: (j.phase, j.rnd or "")))
    comps = tuple(sorted(s.comps, key=lambda c: (c.phase, c.name or "")))
    return s if jobs == s.jobs and comps == s.comps else s._replace(jobs=jobs, comps=comps)


def steps(lake: Lake, s: State) -> Steps:
    for bucket, end in enumerate(s.ends):
        if end < len(lake.w.log[bucket]):
            yield f"log {bucket} grows", s._replace(ends=(*s.ends[:bucket], end + 1, *s.ends[bucket + 1 :]))
    for i, job in enumerate(s.jobs):
        for label, t in round_steps(lake, s, i):
            yield f"job of {job.rnd}: {label}" if job.rnd else f"a job: {label}", t
    for i, comp in enumerate(s.comps):
        for label, t in compaction_steps(lake, s, i):
            yield f"compaction {comp.name}: {label}" if comp.name else f"a compaction: {label}", t
    if s.lease:
        yield "lease expires", s._replace(lease=None)
    if s.clease:
        yield "lease of the compaction expires", s._replace(clease=None)
    for q in s.wire:
        travelled = s._replace(wire=s.wire - {q})
        landed = lake.land(travelled, q) if q.lease in (None, s.lease) else None
        if landed and q.lease:
            landed = end_leased(lake, landed, q)
        yield f"late request of {q.token} " + ("takes effect" if landed else "refused"), landed or travelled
    if s.left("cuts"):
        made = s.spend("cuts")._replace(cut=s.ends, flags=s.flags - {AT_CUT})
        yield f"a cut at {s.ends}", made.flag(AT_CUT) if s.head_snap().offs == s.ends else made
    if s.left("resyncs") and s.head_snap().harm:
        yield "an operator asks for a resync", _ask_resync(lake, s)
    if s.left("dbloss"):
        yield "coordinator loses its database", _lose_database(lake, s)
    yield from orphan_steps(lake, s)
    if lake.w.readers:
        yield from reader_steps(lake, s)
        yield from expiry_steps(lake, s)
    yield from other_steps(lake, s)


def _ask_resync(lake: Lake, s: State) -> State:
    """The round in work, if there is one, was planned without it: it goes on without its lease."""
    base = lake.reconcile(s)
    generation = max(s.generation, base.generation if base else 0) + (s.resync is not None and lake.r.resync_anew)
    every = frozenset(range(len(s.ends)))
    return s.spend("resyncs")._replace(generation=generation, resync=every, lease=None, told=s.head_snap().harm)


def _lose_database(lake: Lake, s: State) -> State:
    return s.spend("dbloss")._replace(
        lease=None,
        clease=None,
        committed=(0,) * len(s.ends),
        ledger=frozenset(),
        generation=0,
        resync=None,
        told=s.told if s.head_snap().generation else frozenset(),
        closed=frozenset(),
        gc=None,
        intents=s.intents if lake.r.durable_intents else frozenset(),
        flags=s.flags | {"dbloss"},
    )


def trace(came: dict[State, tuple[State, str] | None], s: State) -> list[str]:
    out: list[str] = []
    while step := came[s]:
        s, label = step
        out.append(label)
    return out[::-1]
