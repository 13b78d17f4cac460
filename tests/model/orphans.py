# SPDX-License-Identifier: Apache-2.0
"""Orphan removal: fence, list, delete as separate steps, by intents or by sweep."""

from __future__ import annotations

from tests.model.lake import Lake
from tests.model.state import Files, Intent, Removal, State, Steps

EVERYTHING = "*"
"""The owner of a sweep's intent."""


def orphan_steps(lake: Lake, s: State) -> Steps:
    if s.gc is not None:
        yield from _go_on(lake, s, s.gc)
    elif lake.w.gc == "sweep":  # what was listed before a fence belongs to writers that the fence stops
        intent = sweep(lake, s)
        if intent and orphans(s, intent):
            yield "orphans: list files", s._replace(gc=Removal(intent, orphans(s, intent), False))
    elif lake.w.gc:
        for intent in sorted(s.intents, key=str):
            if intent.owner not in (s.lease, s.clease) and (orphans(s, intent) or not lake.r.keep_intent):
                early = None if lake.r.fence_then_list else orphans(s, intent)
                yield f"orphans: begin {intent.owner}", s._replace(gc=Removal(intent, early, False))


def sweep(lake: Lake, s: State) -> Intent | None:
    base = lake.reconcile(s)
    return Intent(EVERYTHING, base.token, base.fence) if base else None


def _go_on(lake: Lake, s: State, gc: Removal) -> Steps:
    intent, victims, listed = gc
    if listed:
        intents = s.intents if lake.r.keep_intent else s.intents - {intent}
        assert victims is not None
        yield "orphans: delete", s._replace(gc=None, files=s.files - victims, intents=intents)
    elif fenced(lake, s, intent):
        if intent.owner == EVERYTHING and victims is not None:
            victims &= orphans(s, intent)
        elif victims is None:
            victims = orphans(s, intent)
        yield "orphans: list", s._replace(gc=Removal(intent, victims, True))
    else:
        t = commit_fence(lake, s)
        if t:
            yield "orphans: commit fencing snapshot", t
        yield "orphans: stop", s._replace(gc=None)


def fenced(lake: Lake, s: State, intent: Intent) -> bool:
    """Can this intent's writer no longer commit?"""
    base = lake.reconcile(s, lake.r.fence_stops)
    if not lake.r.fence:
        return True
    if base is None:
        return False
    if intent.owner in s.closed:
        return True
    if intent.owner == EVERYTHING or (intent.owner[0] == "c" and lake.r.compaction_fenced):
        return base.fence > intent.fence  # a compaction re-bases over rounds, so only a fence stops it
    return base.token != intent.token


def commit_fence(lake: Lake, s: State) -> State | None:
    base = lake.reconcile(s, lake.r.fence_stops)
    if base is None or (lake.r.fence_idle and s.lease) or (lake.r.fence_spares_compaction and s.clease):
        return None
    req = lake.request("fence", s, base, f"f{s.nsnap + 1}", base.offs)
    t = lake.land(s, req._replace(fence=base.fence + 1))
    return lake.adopt(t, base) if t and lake.r.fence_adopts else t


def orphans(s: State, intent: Intent) -> Files:
    """Files of that writer that no snapshot references."""
    used = s.used()
    return frozenset(
        f
        for f in s.files
        if f not in used and (f[0].split(".")[0] == intent.owner or (intent.owner == EVERYTHING and f[0][0] in "rc"))
    )
