# SPDX-License-Identifier: Apache-2.0
"""`lakeward doctor --probe` in a folder of every format: a file is written and gone again, and a folder that takes none
is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakeward.client.columns import parse_columns
from lakeward.errors import LakewardError
from lakeward.model import Schema, TableDescriptor, TableInfo, TablePath, new_table_id
from lakeward.spi import PROBE, SupportsProbe, load_lake


@pytest.mark.parametrize("name", ["delta", "paimon", "lance", "hudi"])
def test_a_probe_leaves_nothing_and_needs_a_folder_that_takes_files(name: str, tmp_path: Path) -> None:
    lake, path = load_lake(name, {"warehouse": str(tmp_path)}), TablePath.parse("shop.orders")
    descriptor = TableDescriptor(schema=Schema(columns=parse_columns("id bigint")))
    table = TableInfo(path=path, table_id=new_table_id(), descriptor=descriptor)
    lake.catalog().create(table, adopt=False)
    upkeep = lake.open_maintenance(table)
    assert isinstance(upkeep, SupportsProbe)
    upkeep.probe()
    assert not list(tmp_path.glob(f"**/{PROBE}*"))
    (folder,) = tmp_path.glob("**/orders*")
    shutil.rmtree(folder)
    folder.write_text("a file where a folder should be")
    with pytest.raises(LakewardError, match="orders"):
        upkeep.probe()
