# SPDX-License-Identifier: Apache-2.0
"""Both folds against a dict, over random changelogs cut into random batches and sub-ranges."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakeward.changelog import Fold, KeyedFold
from lakeward.model import ChangeType as C

Record = tuple[int, C, int, int, int | None]
"""offset, change, key, value, previous offset"""


@dataclass(frozen=True)
class Log:
    """Records in batches; `state_at[i]` is the table as a dict before batch i: key -> (offset, value)."""

    batches: list[list[Record]]
    state_at: list[dict[int, tuple[int, int]]]

    def bounds(self) -> list[int]:
        """Offsets at which the log may be cut."""
        return [b[0][0] for b in self.batches] + [self.batches[-1][-1][0] + 1]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    steps = st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 2)), min_size=1, max_size=6)
    batches: list[list[Record]] = []
    states: list[dict[int, tuple[int, int]]] = []
    state: dict[int, tuple[int, int]] = {}
    offset = draw(st.integers(0, 3))
    for batch_steps in draw(st.lists(steps, min_size=1, max_size=8)):
        states.append(dict(state))
        batch: list[Record] = []
        for key, is_delete, gap in batch_steps:
            old = state.get(key)
            value = offset + 1000
            if is_delete and old is None:
                continue
            offset += gap
            if is_delete and old is not None:
                batch.append((offset, C.DELETE, key, old[1], old[0]))
                del state[key]
            elif old is None:
                batch.append((offset, C.INSERT, key, value, None))
                state[key] = (offset, value)
            else:
                batch.append((offset, C.UPDATE_BEFORE, key, old[1], old[0]))
                offset += 1
                batch.append((offset, C.UPDATE_AFTER, key, value, old[0]))
                state[key] = (offset, value)
            offset += 1
        if batch:
            batches.append(batch)
        else:
            states.pop()
    if not batches:
        return Log([[(0, C.INSERT, 1, 1, None)]], [{}, {1: (0, 1)}])
    states.append(dict(state))
    return Log(batches, states)


def to_arrow(records: list[Record], *, prev: bool = True) -> pa.RecordBatch:
    offsets, changes, keys, values, prevs = zip(*records, strict=True)
    columns = {
        "k": pa.array(keys, pa.int64()),
        "v": pa.array(values, pa.int64()),
        "__offset": pa.array(offsets, pa.int64()),
        "__change_type": pa.array(changes, pa.int8()),
    }
    if prev:
        columns["__prev_offset"] = pa.array(prevs, pa.int64())
    return pa.record_batch(columns)


def rows(batches: list[pa.RecordBatch]) -> list[tuple[int, int, int]]:
    return [(r["__offset"], r["k"], r["v"]) for b in batches for r in b.to_pylist()]


def wanted(state: dict[int, tuple[int, int]], low: int = 0) -> list[tuple[int, int, int]]:
    return sorted((o, k, v) for k, (o, v) in state.items() if o >= low)


@given(logs(), st.data())
def test_sub_ranges_folded_one_after_the_other_equal_a_dict(log: Log, data: st.DataObject) -> None:
    """Each sub-range adds its live rows and takes away what it replaced below it; the sum is the table."""
    cuts = sorted(data.draw(st.sets(st.sampled_from(log.bounds()))) | {log.bounds()[0], log.bounds()[-1]})
    lake: dict[int, tuple[int, int]] = {}
    for start, stop in itertools.pairwise(cuts):
        fold = Fold(start, stop)
        for batch in log.batches:
            fold.see(to_arrow(batch))
        fold.seal()
        for gone in fold.replaced_below.values.tolist():
            del lake[gone]
        added = rows([fold.live(to_arrow(b)) for b in log.batches])
        assert added == sorted(added)
        for offset, key, value in added:
            assert offset not in lake
            lake[offset] = (key, value)
        state = log.state_at[log.bounds().index(stop)]
        assert sorted((o, k, v) for o, (k, v) in lake.items()) == wanted(state)


@given(logs(), st.data())
def test_a_range_stopped_short_equals_the_dict_at_that_stop(log: Log, data: st.DataObject) -> None:
    bounds = log.bounds()
    at = data.draw(st.integers(0, len(log.batches)))
    fold = Fold(bounds[0], bounds[-1])
    for batch in log.batches:
        fold.see(to_arrow(batch))
    assert fold.seal(stop=bounds[at]).stop == bounds[at]
    assert rows([fold.live(to_arrow(b)) for b in log.batches]) == wanted(log.state_at[at])


@given(logs(), st.data())
def test_the_keyed_fold_equals_a_dict(log: Log, data: st.DataObject) -> None:
    bounds = log.bounds()
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(log.batches))] * 2)))
    fold = KeyedFold(bounds[first], bounds[last], ["k"])
    for batch in log.batches:
        fold.see(to_arrow(batch, prev=False))
    fold.seal()
    before, after = log.state_at[first], log.state_at[last]
    assert rows([fold.live(to_arrow(b, prev=False)) for b in log.batches]) == wanted(after, bounds[first])
    touched = set(fold.touched.column("k").to_pylist())
    assert touched == {r[2] for b in log.batches[first:last] for r in b}
    assert set(fold.replaced_keys.column("k").to_pylist()) == touched & set(before)
    assert {k: v for k, v in before.items() if k not in touched} == {
        k: v for k, v in after.items() if v[0] < bounds[first]
    }
