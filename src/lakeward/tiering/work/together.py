# SPDX-License-Identifier: Apache-2.0
"""Which splits of several rounds, one of each side of a table, are written from one read of the log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakeward.model import LogSplit, Split
from lakeward.tiering.work.writeorder import WriteOrder

MOST_SPLITS = 4
"""A read is one task's. Where a side would write more splits than this one after another, each of its own reads."""


@dataclass(frozen=True)
class Writing:
    """A split of one of the orders; `number` says which."""

    number: int
    order: WriteOrder
    split: Split


def plan_reads(orders: Sequence[WriteOrder]) -> list[tuple[Writing, ...]]:
    """Every split of the orders, those together that lie in one stretch of a bucket's log; in the orders' own turns.
    Sides that know the table by different schemas read for themselves."""
    writings = [Writing(n, order, split) for n, order in enumerate(orders) for split in order.splits]
    turns = {(n, split): turn for n, order in enumerate(orders) for turn, split in enumerate(order.splits)}
    logs = [w for w in writings if isinstance(w.split, LogSplit)]
    alone = [(w,) for w in writings if not isinstance(w.split, LogSplit)]
    reads = [part for stretch in _stretches(logs) for part in _bounded(stretch)]
    return sorted([*alone, *reads], key=lambda read: min((turns[w.number, w.split], w.number) for w in read))


def plan_orders(offers: Sequence[WriteOrder], *, is_small: bool) -> list[WriteOrder]:
    """The tasks of these rounds: one for all that is small, else one for each read. An offer's splits are in the order
    of their turns."""
    if is_small:
        parts = [[offer.splits for offer in offers]]
    else:
        parts = [[tuple(w.split for w in read if w.order is o) for o in offers] for read in plan_reads(offers)]
    begun = set[int]()
    return [_order([o.with_splits(s) for o, s in zip(offers, part, strict=True)], begun) for part in parts]


def _order(parts: Iterable[WriteOrder], begun: set[int]) -> WriteOrder:
    """The first that has splits, with the others beside it. `begun`: those whose first split is in an earlier one."""
    given = list[WriteOrder]()
    for number, part in enumerate(parts):
        if part.splits:
            given.append(replace(part, is_first=number not in begun))
            begun.add(number)
    return replace(given[0], beside=tuple(given[1:]))


def _stretches(logs: Sequence[Writing]) -> list[list[Writing]]:
    """Those of one bucket whose ranges overlap, directly or through others."""
    stretches = list[list[Writing]]()
    end = 0
    for w in sorted(logs, key=lambda w: (w.split.bucket, w.order.table.schema.schema_id, w.split.start, w.split.stop)):
        last = stretches[-1][0] if stretches else None
        is_same = last is not None and (last.split.bucket, last.order.table) == (w.split.bucket, w.order.table)
        if is_same and w.split.start < end:
            stretches[-1].append(w)
            end = max(end, w.split.stop)
        else:
            stretches.append([w])
            end = w.split.stop
    return stretches


def _bounded(stretch: Sequence[Writing]) -> list[tuple[Writing, ...]]:
    by_order = [sum(w.number == number for w in stretch) for number in {w.number for w in stretch}]
    return [tuple(stretch)] if max(by_order) <= MOST_SPLITS else [(w,) for w in stretch]
