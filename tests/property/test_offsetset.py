# SPDX-License-Identifier: Apache-2.0
"""A set of offsets against Python's own, whatever the order and density of what it is asked for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakeward.model import OffsetSet

offsets = st.lists(st.integers(0, 200), max_size=120)


@given(st.sets(st.integers(0, 200), max_size=60), offsets, st.booleans())
def test_a_mask_says_which_offsets_are_in_the_set(held: set[int], asked: list[int], is_ordered: bool) -> None:
    wanted = sorted(set(asked)) if is_ordered else asked
    assert OffsetSet(held).mask(np.array(wanted, np.int64)).tolist() == [o in held for o in wanted]


@given(offsets, offsets)
def test_sets_are_made_and_joined_as_pythons_own(one: list[int], other: list[int]) -> None:
    joined = OffsetSet(one).union(OffsetSet(other))
    assert OffsetSet(one).values.tolist() == sorted({*one})
    assert joined.values.tolist() == sorted({*one, *other})
    assert joined.values.dtype == np.int64
