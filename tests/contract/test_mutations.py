# SPDX-License-Identifier: Apache-2.0
"""The contract suite of every format fails when a protection of `lake/core` is taken away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.contract.mutations import MUTATIONS, ROOT, Mutation, apply, survivors


def test_each_mutation_changes_code_that_exists(tmp_path: Path) -> None:
    for number, mutation in enumerate(MUTATIONS):
        source = tmp_path / str(number)
        shutil.copytree(ROOT / "src" / "lakeward" / "lake" / "core", source / "lakeward" / "lake" / "core")
        apply(mutation, source)


@pytest.mark.soak
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: str(m.name))
def test_a_protection_that_is_missing_is_noticed_for_every_format(mutation: Mutation) -> None:
    unnoticed, printed = survivors(mutation)
    assert not unnoticed, printed[-4_000:]
