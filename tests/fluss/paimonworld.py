# SPDX-License-Identifier: Apache-2.0
"""A Fluss cluster whose lake is a folder of Paimon tables; rows as pypaimon's own reader in Python gives them."""

from __future__ import annotations

import pyarrow as pa

from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model.table import TablePath
from lakeward.spi.registry import load_lake
from tests.fluss.steps import DATABASE
from tests.fluss.world import FlussWorld


class PaimonWorld(FlussWorld):
    def paimon(self, name: str) -> PaimonLakeStorage:
        lake = load_lake(*self.plugin.lake_options(self.table(name)))
        assert isinstance(lake, PaimonLakeStorage)
        return lake

    def rows(self, name: str) -> pa.Table:
        builder = self.paimon(name).connection.load(TablePath(DATABASE, name)).new_read_builder()
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())
