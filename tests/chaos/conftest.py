# SPDX-License-Identifier: Apache-2.0
"""Faults in place for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakeward_testing.faults import Faults


@pytest.fixture
def faults() -> Iterator[Faults]:
    with Faults() as made:
        yield made
