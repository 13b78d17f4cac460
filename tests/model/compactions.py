# SPDX-License-Identifier: Apache-2.0
"""Our compaction, beside rounds: plan -> write -> read the head -> lease check -> lake commit -> finish.

Each bucket's files are a group. A group may be left unwritten (a round needs the slot), or lose an input to another
writer; the others are committed. Its commit copies token and offsets: what becomes of an answer that is lost the inputs
tell, so there is nothing to look for.
"""

from __future__ import annotations

from tests.model.lake import Lake
from tests.model.rounds import answers
from tests.model.state import Base, Compaction, Delete, Group, Intent, Req, Snap, State, Steps, visible


def compaction_steps(lake: Lake, s: State, i: int) -> Steps:
    comp = s.comps[i]
    if comp.phase == "idle" and s.clease is None and s.left("compactions"):
        planned = _plan(lake, s, i)
        if planned:
            yield f"plan {planned.comps[i].name}", planned
    elif comp.phase == "planned":
        yield from _write(s, i)
    elif comp.phase == "written":
        yield "read the head", _rebase(lake, s, i)
    elif comp.phase == "rebased":
        held = s.clease == comp.name or not lake.r.lease_check
        t = s if lake.r.close_landed else _close(s, i)
        yield "lease check", t.with_compaction(i, comp._replace(phase="checked")) if held else _end(s, i)
    elif comp.phase == "checked":
        assert comp.req is not None
        for label, t, phase in answers(lake, s, comp.req):
            yield f"lake commit: {label}", t.with_compaction(i, comp._replace(phase=phase))
    elif comp.phase == "unknown":
        yield "send again", s.with_compaction(i, comp._replace(phase="checked"))
    elif comp.phase == "conflict":
        if lake.r.compaction_rebases:
            yield "try again", s.with_compaction(i, comp._replace(phase="written"))
        else:
            yield "gives up", _throw_away(s, i)
    elif comp.phase == "landed":
        yield "report lost, finish", _end(s, i)
        yield "report, finish", _end(_close(s, i), i)
    if comp.phase != "idle" and s.left("kills"):
        yield "killed", s.spend("kills").with_compaction(i, Compaction())


def _plan(lake: Lake, s: State, i: int) -> State | None:
    base, head = lake.reconcile(s), s.head_snap()
    if base is None or base.token is None or not head.files:
        return None
    name = f"c{lake.w.compactions - s.left('compactions') + 1}"
    buckets = sorted({f[1][0][0] for f in head.files})
    groups = tuple(_group(name, head, bucket) for bucket in buckets)
    s = s.spend("compactions")._replace(clease=name, intents=s.intents | {Intent(name, base.token, base.fence)})
    return s.with_compaction(i, Compaction("planned", name, base, head.id, groups))


def _group(name: str, head: Snap, bucket: int) -> Group:
    inputs = frozenset(f for f in head.files if f[1][0][0] == bucket)
    rows = tuple(visible(head._replace(files=inputs)))
    oldest = min((age for f, age in head.ages if f in inputs), default=0)
    applied = frozenset(d for d in head.dels if d[0] in inputs)
    return Group(inputs, (f"{name}.{bucket}.0", rows) if rows else None, oldest, applied)


def _write(s: State, i: int) -> Steps:
    """All groups, or only the first: a round needs the slot."""
    comp = s.comps[i]
    for upto in sorted({len(comp.groups), 1}):
        groups = comp.groups[:upto]
        if all(g.inputs <= s.files for g in groups):
            t = s._replace(files=s.files | {g.output for g in groups if g.output})
            yield f"write {upto} of its groups", t.with_compaction(i, comp._replace(phase="written", groups=groups))
        else:
            yield "an input is gone", _end(s, i)


def _rebase(lake: Lake, s: State, i: int) -> State:
    """Reads the head: which groups still stand, and which deletes came since the plan."""
    comp, base, head = s.comps[i], lake.reconcile(s), s.head_snap()
    assert comp.base is not None
    if base is None:
        return _end(s, i)
    if lake.r.compaction_fenced and base.fence != comp.base.fence:
        held = s.clease == comp.name
        return _end(s.flag("! a compaction that holds the lease lost to our own fence") if held else s, i)
    groups = tuple(g for g in comp.groups if g.inputs <= head.files or not lake.r.inputs_live)
    if not groups:
        return _end(s, i)
    if groups != comp.groups and not lake.r.drop_alone:
        return _throw_away(s, i)
    return s.with_compaction(i, comp._replace(phase="rebased", req=_request(lake, s, comp, groups, base)))


def _request(lake: Lake, s: State, comp: Compaction, groups: tuple[Group, ...], base: Base) -> Req:
    dels = (
        frozenset(d for g in groups for d in _carried_over(g, s.head_snap().dels)) if lake.r.carry_over else frozenset()
    )
    if comp.req and not lake.r.carry_again:
        dels = comp.req.dels
    assert comp.base is not None
    sequence = comp.planned if lake.r.planned_sequence else None
    token = base.token if lake.r.copy_token else comp.name
    req = lake.request("compact", s, base, token, base.offs if lake.r.copy_head else comp.base.offs)
    return req._replace(
        add=frozenset(g.output for g in groups if g.output),
        drop=frozenset(f for g in groups for f in g.inputs),
        dels=dels,
        sequence=sequence if lake.r.not_older_sequence else min(g.oldest for g in groups),
    )


def _carried_over(group: Group, dels: frozenset[Delete]) -> list[Delete]:
    """Rows of its output that were deleted from its inputs since they were read."""
    if group.output is None:
        return []
    late = dels - group.applied
    return [(group.output, row) for f, row in late if f in group.inputs and row in group.output[1]]


def _throw_away(s: State, i: int) -> State:
    """Ends it; a violation where a group could have been committed."""
    head = s.head_snap()
    if any(g.inputs <= head.files for g in s.comps[i].groups):
        s = s.flag("! a compaction threw away a group whose inputs all stand")
    return _end(s, i)


def _close(s: State, i: int) -> State:
    name = s.comps[i].name
    return s._replace(closed=s.closed | {name}) if name else s


def _end(s: State, i: int) -> State:
    """Deletes nothing; the intent stays for orphan removal."""
    lease = None if s.clease == s.comps[i].name else s.clease
    return s._replace(clease=lease).with_compaction(i, Compaction())
