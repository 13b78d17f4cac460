# SPDX-License-Identifier: Apache-2.0
"""A Fluss cluster whose lake is a folder of Paimon tables; rows as pypaimon's own reader in Python gives them."""

from __future__ import annotations

import pyarrow as pa

from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import TablePath
from lakeward.spi import load_lake
from tests.fluss.steps import DATABASE
from tests.fluss.world import FlussWorld


class PaimonWorld(FlussWorld):
    def paimon(self, name: str) -> PaimonLakeStorage:
        lake = load_lake(*self.plugin.lake_options(self.table(name)))
        assert isinstance(lake, PaimonLakeStorage)
        return lake

    def rows(self, name: str) -> pa.Table:
        """Of a clean log table, as Fluss makes it from 1.0 on, with the system columns that our reader makes up; what
        is not known is -1."""
        builder = self.paimon(name).connection.load(TablePath(DATABASE, name)).new_read_builder()
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        table = self.table(name)
        if table.is_pk or "__offset" in found.column_names:
            return found
        reader = self.paimon(name).open_reader(table)
        head = reader.load_snapshot()
        assert head is not None
        batches = list(reader.scan(head.snapshot_id, columns=[*found.column_names, "__bucket", "__offset"]))
        addressed = pa.Table.from_batches(batches)
        plain = addressed.select(found.column_names).to_pylist()
        assert sorted(map(repr, plain)) == sorted(map(repr, found.to_pylist()))
        return addressed
