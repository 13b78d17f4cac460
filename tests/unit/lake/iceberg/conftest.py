# SPDX-License-Identifier: Apache-2.0
"""A lake of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from tests.kit.iceberg.folder import folder_lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[IcebergLakeStorage]:
    with folder_lake(tmp_path) as made:
        yield made
