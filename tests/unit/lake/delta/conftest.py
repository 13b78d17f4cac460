# SPDX-License-Identifier: Apache-2.0
"""A Delta lake in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.lake.delta.plugin import DeltaLakeStorage, open_lake


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLakeStorage:
    return open_lake({"warehouse": str(tmp_path)})
