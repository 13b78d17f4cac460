# SPDX-License-Identifier: Apache-2.0
"""Rows are followed through a rewrite by their position."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakeward.lake.core.rewrite import RankTable
from lakeward.model import OffsetSet

FILES = st.lists(st.lists(st.booleans(), max_size=30), min_size=1, max_size=4)


@given(FILES, st.randoms(use_true_random=False))
def test_every_survivor_is_found_where_it_went(files: list[list[bool]], chance: object) -> None:
    """`files`: which rows of each input live. The survivors of all inputs are mixed, each input's in any order."""
    rows = [(n, at) for n, live in enumerate(files) for at, lives in enumerate(live) if lives]
    chance.shuffle(rows)  # type: ignore[attr-defined]
    for number, live in enumerate(files):
        went = {at: place for place, (n, at) in enumerate(rows) if n == number}
        gone = OffsetSet(np.array([at for at, lives in enumerate(live) if not lives], np.int64))
        table = RankTable.of("f", gone, np.array([went[at] for at in sorted(went)], np.int64))
        again = RankTable.from_bytes(table.to_bytes())
        for at in range(len(live)):
            assert list(again.follow(np.array([at], np.int64))) == ([went[at]] if at in went else [])
        everything = np.arange(len(live), dtype=np.int64)
        assert list(again.follow(everything)) == sorted(went.values())


def test_a_file_whose_rows_stay_together_is_one_run() -> None:
    table = RankTable.of("f", OffsetSet([3]), np.arange(1_000, 100_000, dtype=np.int64))
    assert len(table.ranks) == 1
    assert len(table.to_bytes()) < 1_000
    assert list(table.follow(np.array([2, 3, 4], np.int64))) == [1_002, 1_003]
