# SPDX-License-Identifier: Apache-2.0
"""Lake and log as the protocol sees them: the fold, the oracle, reconcile, and the catalog's side of a commit."""

from __future__ import annotations

from functools import lru_cache
from operator import gt

from tests.model.rules import Rules
from tests.model.state import Base, EqualityDelete, Offsets, Req, Row, Snap, State, visible
from tests.model.world import World

OURS = ("round", "fence", "compact")
AT_CUT = "at the cut"


class Lake:
    def __init__(self, world: World, rules: Rules) -> None:
        self.w, self.r = world, rules
        self.records = [_numbered(batches) for batches in world.log]
        self.fold = lru_cache(None)(self._fold)
        self.expected = lru_cache(None)(self._expected)
        self.wrong = lru_cache(None)(self._wrong)

    def _fold(self, bucket: int, start: int, stop: int, known: int) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
        """What a split writes for batches [start, stop): live rows, and the rows below it that it replaces.

        `known` is the stop that pass one saw; it differs from `stop` only without `trim_short`.
        """
        records = [r for batch in self.records[bucket][start:stop] for r in batch]
        seen = [r for batch in self.records[bucket][start:known] for r in batch]
        low = records[0][0]
        replaced = {prev for _, op, _, prev in seen if op in ("+U", "-D")}
        live = tuple((bucket, o) for o, op, _, _ in records if op in ("+I", "+U") and o not in replaced)
        below = {prev for _, op, _, prev in records if op in ("+U", "-D") and prev is not None and prev < low}
        return live, tuple((bucket, o) for o in sorted(below))

    def keys(self, bucket: int, start: int, stop: int) -> frozenset[frozenset[Row]]:
        """For each key that the range touches, every row it ever has: what an equality delete can hit."""
        touched = {key for batch in self.records[bucket][start:stop] for _, _, key, _ in batch}
        return frozenset(
            frozenset((bucket, o) for batch in self.records[bucket] for o, _, k, _ in batch if k == key)
            for key in touched
        )

    def _expected(self, offs: Offsets) -> list[Row]:
        """The oracle: the changelog folded BY KEY up to the offsets (independent of previous offsets)."""
        rows: list[Row] = []
        for bucket, stop in enumerate(offs):
            state: dict[object, Row] = {}
            for offset, op, key, _ in (r for batch in self.records[bucket][:stop] for r in batch):
                if op in ("+I", "+U"):
                    state[key if self.w.pk else offset] = (bucket, offset)
                elif op == "-D":
                    del state[key]
            rows += state.values()
        return sorted(rows)

    def _wrong(self, n: Snap) -> str | None:
        harmed = {bucket for bucket, _ in n.harm}
        rows, want = ([row for row in of if row[0] not in harmed] for of in (visible(n), self.expected(n.offs)))
        if rows == want:
            return None
        if len(set(rows)) < len(rows):
            return "row twice"
        return "row missing" if set(want) - set(rows) else "row too many (replaced row still visible)"

    def reconcile(self, s: State, look_at_tag: bool = True) -> Base | None:
        """What to plan on; None: rolled back."""
        by, chain, x = {n.id: n for n in s.snaps}, [], s.head
        while x is not None and x in by:
            chain.append(by[x])
            x = by[x].parent
        base = next((n for n in chain if n.token is not None or (self.r.any_offsets and n.who == "flink")), None)
        if look_at_tag and s.tag is not None and s.tag not in {n.id for n in chain}:
            tagged, broken = by[s.tag], x is not None
            same = s.head is not None and s.head > s.tag and visible(by[s.head]) == visible(tagged)
            if not (self.r.broken_chain and broken and same):
                return None
            base = base or tagged
        if base is None:
            return Base((0,) * len(s.ends), None, 0)
        token = base.token
        if token is None:  # a Flink job's snapshot
            token = f"snapshot {base.id}" if self.r.any_token else next((n.token for n in chain if n.token), None)
        return Base(base.offs, token, base.fence, base.generation, base.is_resyncing)

    def land(self, s: State, q: Req) -> State | None:
        """The catalog's side of a commit: the new state, or None for a conflict."""
        if (self.r.exact_head and s.head != q.head) or (self.r.assert_tag and q.who != "flink" and s.tag != q.tag):
            return None
        head, ours = s.head_snap(), q.who in OURS
        if ours and "rows rolled back" in s.flags:
            s = s.flag("! commit on a rolled back table")
        if any(a < b for a, b in zip(q.offs, head.offs or q.offs, strict=True)):
            s = s.flag("! committed offset went back")
        s = _meet_cut(s, q.offs)
        n = self._snap(s, q, head)
        return s._replace(
            snaps=(*s.snaps, n),
            head=n.id,
            nsnap=n.id,
            tag=n.id if ours and self.r.tag else s.tag,
            landed=s.landed | {q.token} if q.who == "round" and q.token else s.landed,
        )

    def _snap(self, s: State, q: Req, head: Snap) -> Snap:
        files, new = (head.files - q.drop) | q.add, s.nsnap + 1
        dels = frozenset(d for d in head.dels | q.dels if d[0] in files)
        n = Snap(new, s.head, q.who, q.token, q.offs, q.fence, files, dels)
        n = n._replace(generation=q.generation, is_resyncing=q.is_resyncing, harm=head.harm - q.cured)
        if not (self.w.pk and self.w.flink):
            return n
        age = new if q.sequence is None else q.sequence
        ages = frozenset((f, a) for f, a in head.ages if f in files) | {(f, age) for f in q.add}
        return n._replace(eqs=head.eqs | {EqualityDelete(rows, new) for rows in q.eqs}, ages=ages)

    def adopt(self, s: State, base: Base) -> State:
        """The coordinator's side of reconcile: which buckets a resync that it finds there has compared nobody says."""
        left = s.resync or frozenset(range(len(s.ends)))
        return self.record(s, base.offs, base.token, base.generation, left if base.is_resyncing else frozenset())

    def record(self, s: State, offs: Offsets, token: str | None, generation: int, left: frozenset[int]) -> State:
        """... and of the coordinator commit."""
        new = tuple(map(max, s.committed, offs)) if self.r.coord_monotone else offs
        s = s._replace(committed=new, ledger=s.ledger | {token} if token else s.ledger)
        if generation <= s.generation:
            return s
        return s._replace(generation=generation, resync=(left or None) if self.r.resync_remains else None)

    def request(self, who: str, s: State, base: Base, token: str | None, offs: Offsets) -> Req:
        """A commit of ours on this head; it copies what it does not change."""
        is_resyncing = base.is_resyncing and self.r.resync_copied
        return Req(who, s.head, s.tag, token, offs, base.fence, generation=base.generation, is_resyncing=is_resyncing)


def _meet_cut(s: State, offs: Offsets) -> State:
    if s.cut is None or AT_CUT in s.flags:
        return s
    if offs == s.cut:
        return s.flag(AT_CUT)
    return s.flag("! the lake went past a cut and holds no snapshot of it") if any(map(gt, offs, s.cut)) else s


def _numbered(
    batches: tuple[tuple[tuple[str, str, int | None], ...], ...],
) -> list[list[tuple[int, str, str, int | None]]]:
    out, n = [], 0
    for batch in batches:
        out.append([(n + i, *record) for i, record in enumerate(batch)])
        n += len(batch)
    return out
