# SPDX-License-Identifier: Apache-2.0
"""The lab's tables in Delta: another engine that compacts them and cleans their log up."""

from __future__ import annotations

from pathlib import Path

from lakeward.errors import LakewardError
from lakeward.lake.delta.plugin import DeltaLakeStorage
from lakeward.model.table import TablePath
from lakeward.testing.deltaforeign import DeltaForeignEngine

HURT = (LakewardError, OSError, AssertionError)
"""How another engine's attempt ends when a round was quicker, or files went meanwhile."""


def meddle_with_delta(warehouse: Path, path: TablePath, deed: str) -> bool:
    """`compact` or `expire`; false when it did not come to pass."""
    try:
        engine = DeltaForeignEngine(DeltaLakeStorage(str(warehouse)).log(path))
        {"compact": engine.optimize, "expire": engine.clean_log}[deed]()
    except HURT:
        return False
    return True
