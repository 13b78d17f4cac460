# SPDX-License-Identifier: Apache-2.0
"""A reader under a read lease, and our expiry beside it."""

from __future__ import annotations

from tests.model.lake import Lake
from tests.model.state import NO_FILES, State, Steps


def reader_steps(lake: Lake, s: State) -> Steps:
    if s.reader is None and s.left("readers") and s.head:
        marked = s.exp[1] if lake.r.expiry_marks and s.exp and s.exp[0] == "decided" else frozenset()
        for n in (n for n in s.snaps if n.id not in marked):
            yield f"reader: lease on snapshot {n.id}", s.spend("readers")._replace(reader=("leased", n))
    elif s.reader and s.reader[0] == "leased":
        stands = s.reader[1] in s.snaps
        yield "reader: check", s._replace(reader=("reading", s.reader[1]) if stands else None)
    elif s.reader:
        yield "reader: done", s._replace(reader=None)


def expiry_steps(lake: Lake, s: State) -> Steps:
    kept = {s.head, s.tag} | ({s.reader[1].id} if s.reader else set())
    cut = frozenset(n.id for n in s.snaps if n.id not in kept)
    if s.exp is None and cut:
        yield "our expiry: decide", s._replace(exp=("decided", cut, NO_FILES))
    elif s.exp and s.exp[0] == "decided":
        ids = s.exp[1] - {s.head, s.tag}
        gone = NO_FILES.union(*(n.files for n in s.snaps if n.id in ids))
        keep = tuple(n for n in s.snaps if n.id not in ids)
        yield "our expiry: metadata", s._replace(snaps=keep, exp=("files", frozenset(), gone))
    elif s.exp:
        yield "our expiry: delete files", s._replace(files=s.files - (s.exp[2] - s.used()), exp=None)
