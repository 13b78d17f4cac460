# SPDX-License-Identifier: Apache-2.0
"""The record of live files belongs to one process."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lakeward.server.live.files import LiveFiles
from lakeward_testing.clock import ManualClock


def test_a_second_process_does_not_get_the_record(tmp_path: Path) -> None:
    """It would let files go that answers of the first one name."""
    first = LiveFiles(tmp_path / "live.db", ManualClock(), 60, 1 << 30)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        LiveFiles(tmp_path / "live.db", ManualClock(), 60, 1 << 30)
    first.close()
    LiveFiles(tmp_path / "live.db", ManualClock(), 60, 1 << 30).close()
