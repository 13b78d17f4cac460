# SPDX-License-Identifier: Apache-2.0
"""A bounded world: the log that will be written, and how often each thing may happen in it."""

from __future__ import annotations

from typing import NamedTuple

Record = tuple[str, str, int | None]
"""(op, key, offset of the record it replaces)"""
Batch = tuple[Record, ...]


class World(NamedTuple):
    log: tuple[tuple[Batch, ...], ...]
    """Per bucket: batches of records."""
    pk: bool = False
    first: int = 1
    """Batches that are visible at the start, per bucket."""
    tiered: int = 0
    """Batches that the lake holds at the start, per bucket, by round `r0`."""
    slots: int = 2
    """Jobs that can run rounds at once."""
    compactors: int = 1
    """... and compactions, where there are any."""
    gc: str = "intents"
    """Orphan removal: by intents, by sweep (list files, fence, read references), or "" for none."""
    late: bool = False
    """Requests may take effect late."""
    leased: bool = False
    """The catalog is the coordinator's own: lease check, lake commit and report are one request."""
    expiry: bool = False
    """Other engines expire snapshots and remove their files."""
    flink_zombie: bool = False
    """The Flink job may pause between its plan and its (unconditional) commit."""
    rounds: int = 3
    kills: int = 0
    fcompact: int = 0
    """Other engines' rewrites of all files."""
    frewrite: int = 0
    """... and of one bucket's."""
    rollback: int = 0
    dbloss: int = 0
    flink: int = 0
    compactions: int = 0
    readers: int = 0
    forphan: int = 0
    """Other engines' orphan removal."""
    fdelete: int = 0
    """Other engines' deletes of all rows of one bucket."""
    resyncs: int = 0
    """Resyncs that an operator asks for once somebody did that."""
    cuts: int = 0
    """Moments that the lake must hold a snapshot of."""


BUDGET = (
    "rounds",
    "kills",
    "fcompact",
    "frewrite",
    "rollback",
    "dbloss",
    "flink",
    "compactions",
    "readers",
    "forphan",
    "fdelete",
    "resyncs",
    "cuts",
)
"""What happens a bounded number of times; the rest is bounded by them."""


def ins(key: str) -> Record:
    return ("+I", key, None)


def upd(key: str, prev: int) -> tuple[Record, Record]:
    return ("-U", key, prev), ("+U", key, prev)


LOG = (((ins("a"),), (ins("b"),), (ins("c"),)),)
LOG2 = (((ins("a"),), (ins("b"),)), ((ins("c"),), (ins("d"),)))
PK = (
    (
        (ins("a"), ins("b")),  # offsets 0 1
        (*upd("a", 0), *upd("a", 3)),  # 2 3 4 5: a chain inside one batch
        (("-D", "a", 5), ins("a"), ("-D", "b", 1)),  # 6 7 8: delete, insert again, delete
    ),
)
PK2 = (((ins("a"), ins("b")), upd("a", 0)), ((ins("c"),), upd("c", 0)))
