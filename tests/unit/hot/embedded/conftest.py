# SPDX-License-Identifier: Apache-2.0
"""A yard for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.hot.embedded.store import EmbeddedStore
from tests.unit.hot.embedded.yard import StubGuard, Yard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(yard: Yard) -> EmbeddedStore:
    return yard.open()


@pytest.fixture
def guard() -> StubGuard:
    return StubGuard()
