# SPDX-License-Identifier: Apache-2.0
"""What must hold in every state (design.md 10), and that a fresh job can always go on from it."""

from __future__ import annotations

from tests.model.lake import Lake
from tests.model.orphans import commit_fence, fenced, orphans, sweep
from tests.model.rounds import plan, resolve, stop, write
from tests.model.state import NO_FILES, Compaction, Job, State, visible


class Violation(Exception):
    pass


class Invariants:
    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.recovered: set[object] = set()

    def check(self, old: State, s: State) -> None:
        if s.snaps is not old.snaps or s.files is not old.files:
            self._check_snapshots(s)
        if s.reader and s.reader[0] == "reading" and not s.reader[1].files <= s.files:
            raise Violation("a file under a read lease is gone")
        if any(a < b for a, b in zip(s.committed, old.committed, strict=True)) and "dbloss" not in s.flags:
            raise Violation(f"coordinator's committed offset went back from {old.committed} to {s.committed}")
        if s.landed & s.gave_up and not s.flags & {"dbloss", "rolled"}:
            raise Violation(f"round {min(s.landed & s.gave_up)} is in the lake and its job was told it is not")
        if s.resync is None and s.told & s.head_snap().harm and not self._is_to_learn(s):
            raise Violation("a resync counts as done, and a bucket of it was never compared")
        for flag in s.flags:
            if flag[0] == "!":
                raise Violation(flag[2:])
        self._check_recovery(s)

    def _is_to_learn(self, s: State) -> bool:
        """Will the coordinator read in the lake that a resync is not done?"""
        base = self.lake.reconcile(s)
        return base is not None and base.is_resyncing and base.generation > s.generation

    def _check_snapshots(self, s: State) -> None:
        for n in s.snaps:
            wrong = self.lake.wrong(n)
            if wrong:
                raise Violation(f"{wrong} in snapshot {n.id}: offsets {n.offs}, rows {visible(n)}")
            if not n.files <= s.files:
                raise Violation(f"retained snapshot {n.id} ({n.who}) references a deleted file")

    def _check_recovery(self, s: State) -> None:
        """Progress: an undisturbed fresh job completes a clean round, and every orphan can then be removed."""
        key = (s.ends, s.cut, s.generation, s.resync, s.snaps, s.head, s.tag, s.files, s.intents, s.closed, s.committed)
        if key in self.recovered or "rolled" in s.flags:
            return
        self.recovered.add(key)
        t = self._fresh_round(s)
        head = t.head_snap()
        before = self.lake.reconcile(s)
        asked = before is not None and self.lake.adopt(s, before).resync is not None
        if asked and head.harm & s.told:
            raise Violation("no clean resync can be completed from here")
        ends = t.ends if before is None or asked else stop(self.lake, t, before.offs, t.cut)
        wrong = self.lake.wrong(head) or ("offsets stand still" if head.offs != ends else None)
        if wrong:
            raise Violation(f"no clean round can be completed from here: the next one gives {wrong}")
        if self.lake.w.gc:
            self._check_leaks(s, t)

    def _fresh_round(self, s: State) -> State:
        t = s._replace(
            lease=None,
            clease=None,
            jobs=(Job(),),
            comps=tuple(Compaction() for _ in s.comps),
            gc=None,
            wire=frozenset(),
            reader=None,
            exp=None,
            budget=(1, *s.budget[1:]),
            flags=frozenset(),
        )
        base = self.lake.reconcile(t)
        if base is None:
            raise Violation("stuck: reports a rollback that never happened")
        if base.offs == t.ends and self.lake.adopt(t, base).resync is None:
            return t
        planned = plan(self.lake, t, 0, t.cut)
        assert planned is not None
        t = planned.with_job(0, planned.jobs[0]._replace(rnd="rz"))
        ((_, t),) = write(self.lake, t, 0, faults=False)
        t = resolve(self.lake, t, 0)
        if t.jobs[0].phase == "stopped":
            raise Violation("stuck: a replaced row is found nowhere")
        req = t.jobs[0].req
        return (self.lake.land(t, req) or t) if req else t

    def _check_leaks(self, s: State, t: State) -> None:
        t = t._replace(lease=None)
        everything = sweep(self.lake, t)
        assert everything is not None
        for intent in t.intents if self.lake.w.gc == "intents" else {everything}:
            if not fenced(self.lake, t, intent):
                t = commit_fence(self.lake, t) or t
            t = t._replace(files=t.files - orphans(t, intent))
        used = t.used() | (s.exp[2] if s.exp else NO_FILES)
        leak = sorted(f[0] for f in t.files if f[0][0] in "rc" and f not in used)
        if leak and not self.lake.w.readers:
            raise Violation(f"file {leak[0]} can never be removed: no snapshot and no intent names it")
