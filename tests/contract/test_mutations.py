# SPDX-License-Identifier: Apache-2.0
"""The contract suite of every format fails when a protection of `lake/core` is taken away."""

from __future__ import annotations

import pytest

from tests.contract.mutations import MUTATIONS, Mutation, survivors


@pytest.mark.soak
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: str(m.name))
def test_a_protection_that_is_missing_is_noticed_for_every_format(mutation: Mutation) -> None:
    unnoticed, printed = survivors(mutation)
    assert not unnoticed, printed[-4_000:]
