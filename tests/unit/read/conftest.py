# SPDX-License-Identifier: Apache-2.0
"""A Lakeward over a real Iceberg lake, whose log is cut into small segments, and its clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.hot.embedded.options import StoreOptions
from lakeward_testing.clock import ManualClock
from tests.kit.inprocess import InProcessLakeward
from tests.property.union_program import iceberg_lake

SMALL_SEGMENTS = {"log.segment.file-size": "4kb", "kv.snapshot.interval": "1 s"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(tmp_path: Path, clock: ManualClock) -> Iterator[InProcessLakeward]:
    made = InProcessLakeward(tmp_path, iceberg_lake(tmp_path), clock, StoreOptions.with_settings(SMALL_SEGMENTS))
    yield made
    made.close()
