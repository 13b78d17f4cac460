# SPDX-License-Identifier: Apache-2.0
"""A job's round: plan -> write -> resolve -> lease check -> lake commit -> coordinator commit and finish.

A paused job is one the search does not step; a zombie is one it steps late; a kill empties the slot (the slot's next
round is the restarted instance). A commit's answer may be lost before or after it took effect, be a conflict caused by
the transport's own retry, or the request may arrive any time later.
"""

from __future__ import annotations

from itertools import product
from operator import ge

from tests.model.lake import Lake
from tests.model.state import Base, File, Intent, Job, Offsets, Part, Req, State, Steps


def round_steps(lake: Lake, s: State, i: int) -> Steps:
    job = s.jobs[i]
    if job.phase == "idle" and s.cut is None and not lake.r.cut_after_ends:
        yield "look for cuts", s.with_job(i, Job("looked"))
    if job.phase in ("idle", "looked") and s.lease is None and s.left("rounds"):
        planned = plan(lake, s, i, None if job.phase == "looked" else s.cut)
        if planned:
            yield f"plan {planned.jobs[i].rnd} to {planned.jobs[i].ends}", planned
    elif job.phase == "planned":
        yield from ((f"write, sub-splits stop at {o}", t) for o, t in write(lake, s, i))
    elif job.phase == "written":
        yield "resolve", resolve(lake, s, i)
    elif job.phase == "resolved":
        held = s.lease == job.rnd or not lake.r.lease_check
        yield "lease check", s.with_job(i, job._replace(phase="checked")) if held else _give_up(s, i)
    elif job.phase == "checked":
        yield from ((f"lake commit: {o}", t) for o, t in _commit(lake, s, i))
    elif job.phase in ("conflict", "unknown"):
        yield "find own round id", _find(lake, s, i)
    elif job.phase == "landed":
        assert job.req is not None
        t = lake.adopt(s, job.req.offs, job.rnd)
        yield "coordinator commit, answer lost", t
        yield "coordinator commit, finish", _release(t, job).with_job(i, Job())
    if job.phase != "idle" and s.left("kills"):
        yield "killed", s.spend("kills").with_job(i, Job())


def plan(lake: Lake, s: State, i: int, cut: Offsets | None) -> State | None:
    base = lake.reconcile(s)
    ends = s.ends if base is None else stop(lake, s, base.offs, cut)
    if base is None or base.offs == ends:
        return None  # an error for the operator / nothing new: no round, no snapshot
    rnd = f"r{lake.w.rounds - s.left('rounds') + 1}"
    s = lake.adopt(s.spend("rounds"), base.offs, base.token)
    s = s._replace(lease=rnd, intents=s.intents | {Intent(rnd, base.token, base.fence)})
    return s.with_job(i, Job("planned", rnd, base, ends))


def stop(lake: Lake, s: State, offs: Offsets, cut: Offsets | None) -> Offsets:
    """Up to the log's ends, or to a cut that the lake has not reached."""
    is_reached = cut is None or all(map(ge, offs, cut))
    return s.ends if cut is None or is_reached or not lake.r.cut_stops else cut


def write(lake: Lake, s: State, i: int, faults: bool = True) -> Steps:
    """Each bucket's range is cut in two; a sub-split finishes, stops short at a batch boundary, or fails."""
    job = s.jobs[i]
    assert job.base is not None
    splits = []
    for bucket, (lo, hi) in enumerate(zip(job.base.offs, job.ends, strict=True)):
        mid = lo + (hi - lo + 1) // 2
        splits += [(bucket, x, y) for x, y in ((lo, mid), (mid, hi)) if x < y]
    for stops in product(*[range(x, y + 1) if faults else (y,) for _, x, y in splits]):
        parts, files = _written(lake, job, splits, stops)
        t = s._replace(files=s.files | files)
        yield str(stops), t.with_job(i, job._replace(phase="written", parts=parts)) if parts else _give_up(t, i)


def _written(
    lake: Lake, job: Job, splits: list[tuple[int, int, int]], stops: tuple[int, ...]
) -> tuple[tuple[Part, ...], set[File]]:
    parts, files, open_buckets = [], set(), set()
    for (bucket, lo, hi), stop in zip(splits, stops, strict=True):
        if stop > lo:
            rows, replaced = lake.fold(bucket, lo, stop, stop if lake.r.trim_short else hi)
            file = (f"{job.rnd}.{bucket}.{lo}", rows) if rows else None
            files |= {file} if file else set()
            if bucket not in open_buckets or not lake.r.prefix:
                parts.append(Part(bucket, lo, stop, file, replaced))
        if stop < hi:
            open_buckets.add(bucket)
    return tuple(parts), files


def resolve(lake: Lake, s: State, i: int) -> State:
    """Reads the head, checks the precondition on it, and turns replaced rows into positions in its files."""
    job, base = s.jobs[i], lake.reconcile(s)
    assert job.base is not None
    if base is None:
        return s.with_job(i, Job("stopped"))
    starts: dict[int, int] = {}
    new = list(base.offs)
    for part in job.parts:
        starts.setdefault(part.bucket, part.start)
        new[part.bucket] = part.stop
    moved = any(base.offs[bucket] != start for bucket, start in starts.items())
    if (lake.r.token_check and base.token != job.base.token) or (lake.r.offset_check and moved):
        return _lost(lake, s, i, base)
    add = frozenset(p.file for p in job.parts if p.file)
    if job.req and not lake.r.re_resolve:
        dels = job.req.dels
    else:
        where = {row: f for f in s.head_snap().files | add for row in f[1]}
        gone = [row for p in job.parts for row in p.replaced]
        if any(row not in where for row in gone):
            return s.with_job(i, Job("stopped"))  # found nowhere: the round fails; recovery must still succeed
        dels = frozenset((where[row], row) for row in gone)
    req = Req("round", s.head, s.tag, job.rnd, tuple(new), base.fence, add, dels=dels)
    return s.with_job(i, job._replace(phase="resolved", req=req))


def _lost(lake: Lake, s: State, i: int, base: Base) -> State:
    job = s.jobs[i]
    if s.lease == job.rnd and base.token:
        winner = {"f": "fence", "c": "compaction"}.get(base.token[0])
        if winner:
            s = s.flag(f"! a round that holds the lease lost to our own {winner}")
    if lake.r.new_round_id or base.offs == s.ends:
        return _give_up(s, i)  # lost the race: adopt and plan again
    return s.with_job(i, Job("planned", job.rnd, base, s.ends))


def _commit(lake: Lake, s: State, i: int) -> Steps:
    job = s.jobs[i]
    assert job.req is not None
    for label, t, phase in answers(lake, s, job.req):
        yield label, t.with_job(i, job._replace(phase=phase))


def answers(lake: Lake, s: State, req: Req) -> list[tuple[str, State, str]]:
    """All that can become of a commit request: (what happened, the state, what the sender takes it for)."""
    out = [("request lost", s, "unknown")]
    if lake.w.late and req not in s.wire:
        out.append(("request delayed", s._replace(wire=s.wire | {req}), "unknown"))
    t = lake.land(s, req)
    if t is None:
        return [*out, ("conflict", s, "conflict")]
    return [
        *out,
        ("done", t, "landed"),
        ("took effect, answer lost", t, "unknown"),
        ("took effect, transport's retry says conflict", t, "conflict"),
    ]


def _find(lake: Lake, s: State, i: int) -> State:
    job = s.jobs[i]
    in_lake = any(n.token == job.rnd for n in s.snaps)
    if lake.r.find_first and (in_lake or (lake.r.find_ledger and job.rnd in s.ledger)):
        return s.with_job(i, job._replace(phase="landed"))
    if job.phase == "conflict":
        return s.with_job(i, job._replace(phase="written"))  # resolve decides: retry on the new head, or lost
    return s.with_job(i, job._replace(phase="checked")) if lake.r.resend_unknown else _give_up(s, i)


def _give_up(s: State, i: int) -> State:
    """Deletes nothing; the intent stays for orphan removal."""
    job = s.jobs[i]
    assert job.rnd is not None
    return _release(s, job)._replace(gave_up=s.gave_up | {job.rnd}).with_job(i, Job())


def _release(s: State, job: Job) -> State:
    return s._replace(lease=None if s.lease == job.rnd else s.lease)
