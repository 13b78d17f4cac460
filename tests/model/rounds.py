# SPDX-License-Identifier: Apache-2.0
"""A job's round: plan -> write -> resolve -> lease check -> lake commit -> coordinator commit and finish. Where the
catalog is the coordinator's own, the last three are one request.

A paused job is one the search does not step; a zombie is one it steps late; a kill empties the slot (the slot's next
round is the restarted instance). A commit's answer may be lost before or after it took effect, be a conflict caused by
the transport's own retry, or the request may arrive any time later.
"""

from __future__ import annotations

from itertools import combinations, product
from operator import ge

from tests.model.lake import Lake
from tests.model.state import Base, File, Intent, Job, Offsets, Part, Req, State, Steps, visible


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
        if lake.w.leased and job.req is None and {None, *(n.id for n in s.snaps)}.issuperset(job.seen):
            yield "resolve on the planned head", resolve(lake, s, i, s._replace(head=job.seen[0], tag=job.seen[1]))
    elif job.phase == "resolved" and lake.w.leased:
        yield from ((f"leased commit: {o}", t) for o, t in _commit_leased(lake, s, i))
    elif job.phase == "resolved":
        held = s.lease == job.rnd or not lake.r.lease_check
        yield "lease check", s.with_job(i, job._replace(phase="checked")) if held else _give_up(s, i)
    elif job.phase == "checked":
        yield from ((f"lake commit: {o}", t) for o, t in _commit(lake, s, i))
    elif job.phase in ("conflict", "unknown"):
        yield "find own round id", _find(lake, s, i)
    elif job.phase == "landed":
        assert job.req is not None
        t = lake.record(s, job.req.offs, job.rnd, job.req.generation, job.req.left)
        yield "coordinator commit, answer lost", t
        yield "coordinator commit, finish", _release(t, job).with_job(i, Job())
    if job.phase != "idle" and s.left("kills"):
        yield "killed", s.spend("kills").with_job(i, Job())


def plan(lake: Lake, s: State, i: int, cut: Offsets | None) -> State | None:
    base = lake.reconcile(s)
    if base is None:
        return None  # an error for the operator
    adopted = lake.adopt(s, base)
    ends = stop(lake, s, base.offs, cut) if adopted.resync is None else s.ends
    if base.offs == ends and adopted.resync is None:
        return None  # nothing new: no round, no snapshot
    rnd = f"r{lake.w.rounds - s.left('rounds') + 1}"
    s = adopted.spend("rounds")._replace(lease=rnd, intents=s.intents | {Intent(rnd, base.token, base.fence)})
    job = Job("planned", rnd, base, ends)
    if lake.w.leased:
        job = job._replace(seen=(s.head, s.tag))
    if s.resync is not None:
        job = job._replace(compare=s.resync, generation=max(base.generation, s.generation) + 1, head=s.head_snap())
    return s.with_job(i, job)


def stop(lake: Lake, s: State, offs: Offsets, cut: Offsets | None) -> Offsets:
    """Up to the log's ends, or to a cut that the lake has not reached."""
    is_reached = cut is None or all(map(ge, offs, cut))
    return s.ends if cut is None or is_reached or not lake.r.cut_stops else cut


def write(lake: Lake, s: State, i: int, faults: bool = True) -> Steps:
    """Each bucket's range is cut in two; a sub-split finishes, stops short at a batch boundary, or fails. A bucket that
    a resync compares is written whole or not at all."""
    job = s.jobs[i]
    assert job.base is not None
    compare, splits = job.compare or frozenset(), []
    for bucket, (lo, hi) in enumerate(zip(job.base.offs, job.ends, strict=True)):
        mid = lo + (hi - lo + 1) // 2
        splits += [(bucket, x, y) for x, y in ((lo, mid), (mid, hi)) if x < y and bucket not in compare]
    kept = _kept(compare, faults)
    for stops in product(*[range(x, y + 1) if faults else (y,) for _, x, y in splits]):
        for whole in kept:
            parts, files = _written(lake, job, splits, stops)
            compared = [_compared(lake, job, bucket) for bucket in sorted(whole)]
            parts, files = (*parts, *compared), files | {p.file for p in compared if p.file}
            t = s._replace(files=s.files | files)
            said = f"{stops}" + (f", compared {sorted(whole)}" if compare else "")
            yield said, t.with_job(i, job._replace(phase="written", parts=parts)) if parts else _give_up(t, i)


def _kept(compare: frozenset[int], faults: bool) -> list[frozenset[int]]:
    """Which of the comparisons are through when the round ends."""
    if not faults:
        return [compare]
    return [frozenset(c) for n in range(len(compare) + 1) for c in combinations(sorted(compare), n)]


def _compared(lake: Lake, job: Job, bucket: int) -> Part:
    """From a KV snapshot at the log's end: what the lake's snapshot lacks, and what it has too many."""
    assert job.base is not None
    assert job.head is not None
    have = [row for row in visible(job.head) if row[0] == bucket]
    want = [row for row in lake.expected(job.ends) if row[0] == bucket]
    rows = tuple(row for row in want if row not in have)
    file = (f"{job.rnd}.{bucket}.snapshot", rows) if rows else None
    return Part(bucket, job.base.offs[bucket], job.ends[bucket], file, tuple(set(have) - set(want)))


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


def resolve(lake: Lake, s: State, i: int, view: State | None = None) -> State:
    """Reads the head, checks the precondition on it, and turns replaced rows into positions in its files. `view`: the
    lake as it was read before."""
    view = s if view is None else view
    job, base = s.jobs[i], lake.reconcile(view)
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
        holding = view.head_snap().files | add
        gone = {row for p in job.parts for row in p.replaced}
        harmed = {bucket for bucket, _ in view.head_snap().harm}
        if any(row[0] not in harmed for row in gone - {row for f in holding for row in f[1]}):
            return s.with_job(i, Job("stopped"))  # found nowhere: the round fails; recovery must still succeed
        dels = frozenset((f, row) for f in holding for row in f[1] if row in gone)
    req = lake.request("round", view, base, job.rnd, tuple(new))._replace(add=add, dels=dels)
    if lake.w.leased:
        req = req._replace(lease=job.rnd)
    return s.with_job(i, job._replace(phase="resolved", req=_of_resync(lake, job, req)))


def _of_resync(lake: Lake, job: Job, req: Req) -> Req:
    """A resync begins a generation, and says which of its buckets are still to be compared."""
    if job.compare is None or job.head is None:
        return req
    compared = {p.bucket for p in job.parts} & job.compare
    left = job.compare - compared
    return req._replace(
        generation=job.generation,
        is_resyncing=bool(left) and lake.r.resync_marked,
        left=left,
        cured=frozenset(h for h in job.head.harm if h[0] in compared),
    )


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


def _commit_leased(lake: Lake, s: State, i: int) -> Steps:
    """The answer says that the lease is gone, or it is one of a commit's; a report travels with what takes effect."""
    job = s.jobs[i]
    assert job.req is not None
    unknown = job._replace(phase="unknown", is_sent=True)
    yield "request lost", s.with_job(i, unknown)
    if lake.w.late and job.req not in s.wire:
        yield "request delayed", s._replace(wire=s.wire | {job.req}).with_job(i, unknown)
    if s.lease != job.rnd:
        is_in = job.is_sent and lake.r.refused_find and _is_known(lake, s, job)
        yield "refused", s.with_job(i, job._replace(phase="landed")) if is_in else _give_up(s, i)
        return
    if not lake.r.leased_alone:
        checked = job.req._replace(lease=None)
        yield "checked, then slow", s._replace(wire=s.wire | {checked}).with_job(i, unknown)
    landed = lake.land(s, job.req)
    if landed is None:
        yield "conflict", s.with_job(i, job._replace(phase="conflict", is_sent=True))
        return
    yield "took effect, no report", landed.with_job(i, unknown)
    t = end_leased(lake, landed, job.req)
    yield "done", t.with_job(i, Job())
    yield "took effect, answer lost", t.with_job(i, unknown)
    yield "took effect, transport's retry says conflict", t.with_job(i, job._replace(phase="conflict", is_sent=True))


def end_leased(lake: Lake, s: State, req: Req) -> State:
    """The report of a leased commit that took effect, and the round's end with it."""
    t = lake.record(s, req.offs, req.token, req.generation, req.left)
    return t._replace(lease=None if t.lease == req.lease else t.lease)


def _is_known(lake: Lake, s: State, job: Job) -> bool:
    return any(n.token == job.rnd for n in s.snaps) or (lake.r.find_ledger and job.rnd in s.ledger)


def _find(lake: Lake, s: State, i: int) -> State:
    job = s.jobs[i]
    if lake.r.find_first and _is_known(lake, s, job):
        return s.with_job(i, job._replace(phase="landed"))
    if job.phase == "conflict":
        return s.with_job(i, job._replace(phase="written"))  # resolve decides: retry on the new head, or lost
    if lake.w.leased and lake.r.resend_unknown:
        return s.with_job(i, job._replace(phase="resolved"))
    return s.with_job(i, job._replace(phase="checked")) if lake.r.resend_unknown else _give_up(s, i)


def _give_up(s: State, i: int) -> State:
    """Deletes nothing; the intent stays for orphan removal."""
    job = s.jobs[i]
    assert job.rnd is not None
    return _release(s, job)._replace(gave_up=s.gave_up | {job.rnd}).with_job(i, Job())


def _release(s: State, job: Job) -> State:
    return s._replace(lease=None if s.lease == job.rnd else s.lease)
