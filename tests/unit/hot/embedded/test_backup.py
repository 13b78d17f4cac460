# SPDX-License-Identifier: Apache-2.0
"""A copy of the store while it runs; tests/server/test_backup.py has it under load, on a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.hot.embedded.backup import stage_store
from tests.unit.hot.embedded.yard import B0, Yard, rows


def test_a_store_that_knows_its_folder_by_a_relative_path_is_copied(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `lakeward up` opens ./lakeward-data."""
    monkeypatch.chdir(tmp_path)
    store, table = yard.open(Path("data")), yard.table()
    store.create_table(table)
    store.append(table, B0, rows(3))
    assert stage_store(store, tmp_path / "data", tmp_path / "copy") == {str(table.path): {str(B0): 1}}
