# SPDX-License-Identifier: Apache-2.0
"""One world per test, closed behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.world import CoordinatorWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CoordinatorWorld]:
    made = CoordinatorWorld(tmp_path)
    yield made
    made.close()
