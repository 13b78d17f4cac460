# SPDX-License-Identifier: Apache-2.0
"""Other writers of the lake: compaction, expiry with file removal, rollback, a Flink tiering job, orphan removal."""

from __future__ import annotations

from tests.model.lake import Lake
from tests.model.state import Files, Req, Snap, State, Steps, visible


def other_steps(lake: Lake, s: State) -> Steps:
    head = s.head_snap()
    if s.left("fcompact") and head.files:
        yield "foreign compaction", _rewrite(s.spend("fcompact"), head, head.files)
    if s.left("frewrite"):
        for bucket in sorted({f[1][0][0] for f in head.files}):
            inputs = frozenset(f for f in head.files if f[1][0][0] == bucket)
            yield f"foreign compaction of bucket {bucket}", _rewrite(s.spend("frewrite"), head, inputs)
    if lake.w.expiry:
        keep = tuple(n for n in s.snaps if n.id in (s.head, s.tag))
        if len(keep) < len(s.snaps):
            t = s._replace(snaps=keep)
            yield "foreign expiry", t._replace(files=s.files - (s.used() - t.used()))
    if s.left("fdelete"):
        for bucket in sorted({row[0] for row in visible(head)}):
            yield f"another engine deletes the rows of bucket {bucket}", _delete(s.spend("fdelete"), head, bucket)
    if s.left("rollback"):
        yield from _roll_back(s, head)
    yield from _flink(lake, s, head)
    if s.left("forphan") and s.files - s.used():
        yield "foreign orphan removal", s.spend("forphan")._replace(files=s.files & s.used())


def _rewrite(s: State, head: Snap, inputs: Files) -> State:
    rows = tuple(visible(head._replace(files=inputs)))
    new: Files = frozenset({(f"x{s.nsnap}", rows)}) if rows else frozenset()
    dels = frozenset(d for d in head.dels if d[0] not in inputs)
    ages = frozenset(a for a in head.ages if a[0] not in inputs)
    if head.ages:
        ages |= {(f, s.nsnap + 1) for f in new}
    n = Snap(
        s.nsnap + 1,
        s.head,
        "foreign",
        None,
        head.offs,
        0,
        (head.files - inputs) | new,
        dels,
        head.eqs,
        ages,
        harm=head.harm,
    )
    return s._replace(snaps=(*s.snaps, n), head=n.id, nsnap=n.id, files=s.files | new)


def _delete(s: State, head: Snap, bucket: int) -> State:
    gone = frozenset((f, row) for f in head.files for row in f[1] if row[0] == bucket)
    new, harm = s.nsnap + 1, head.harm | {(bucket, s.nsnap + 1)}
    n = head._replace(id=new, parent=s.head, who="foreign", token=None, fence=0, dels=head.dels | gone, harm=harm)
    return s._replace(snaps=(*s.snaps, n), head=n.id, nsnap=n.id)


def _roll_back(s: State, head: Snap) -> Steps:
    by, x = {n.id: n for n in s.snaps}, head.parent
    while x is not None and x in by:
        flags = s.flags | {"rolled"} if s.tag is not None and s.tag > x else s.flags
        if "rolled" in flags and s.tag is not None and by[s.tag].offs != by[x].offs:
            flags |= {"rows rolled back"}
        yield f"foreign rollback to snapshot {x}", s.spend("rollback")._replace(head=x, flags=flags)
        x = by[x].parent


def _flink(lake: Lake, s: State, head: Snap) -> Steps:
    start = head.offs or (0,) * len(s.ends)
    if s.left("flink") and start != s.ends:
        planned = s.spend("flink")._replace(flink=(start, s.ends))
        if lake.w.flink_zombie:
            yield "Flink job plans", planned
        else:
            yield "Flink job commits", _flink_commit(lake, planned)
    if s.flink:
        yield "Flink job commits", _flink_commit(lake, s)


def _flink_commit(lake: Lake, s: State) -> State:
    """Its commit checks nothing. On a PK table it deletes by key what is older than itself."""
    assert s.flink is not None
    ranges = [(b, lo, hi) for b, (lo, hi) in enumerate(zip(*s.flink, strict=True)) if lo < hi]
    rows = tuple(r for b, lo, hi in ranges for r in lake.fold(b, lo, hi, hi)[0])
    new: Files = frozenset({(f"flink{s.nsnap}", rows)}) if rows else frozenset()
    keys = frozenset(k for b, lo, hi in ranges for k in lake.keys(b, lo, hi)) if lake.w.pk else frozenset()
    stop = s.flink[1]
    s = s._replace(files=s.files | new, flink=None)
    t = lake.land(s, Req("flink", s.head, s.tag, None, stop, s.head_snap().fence, new, eqs=keys))
    assert t is not None
    return t
