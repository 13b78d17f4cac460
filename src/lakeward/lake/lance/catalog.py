# SPDX-License-Identifier: Apache-2.0
"""DDL on Lance tables: a folder for each below the warehouse, its columns and properties in its newest version."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence

import lance
import pyarrow as pa

from lakeward.lake.core.catalog import HISTORY, NUMBER, WarehouseCatalog
from lakeward.lake.lance.columns import check_columns, parse_columns, system_columns_last, table_schema, to_lance_field
from lakeward.lake.lance.log import LanceGround, LanceSnapshotLog
from lakeward.lake.lance.table import ALTER_KEY, LanceTable, apply, fragments_of
from lakeward.lake.warehouse import Warehouse
from lakeward.model import Column, TableInfo, TablePath

_PRIMARY_KEY, _PARTITION_KEYS = "lakeward.primary-key", "lakeward.partition-keys"
_RESERVED = (_PRIMARY_KEY, _PARTITION_KEYS, "lance.auto_cleanup.")
"""Lake properties that nobody may change: rounds rely on them, and history is kept as our own properties say."""

_ALLOWED = {**HISTORY, "write.target-file-size-bytes": NUMBER}
_FILE_VERSION = "2.2"
"""The format of data files that the library writes by itself since 14, and that other readers of it have."""


class LanceLakeCatalog(WarehouseCatalog[LanceGround]):
    lake, allowed, has_time_partitions = "lance", _ALLOWED, True

    def __init__(self, warehouse: Warehouse, table_of: Callable[[TablePath], LanceTable]) -> None:
        super().__init__(warehouse)
        self._table_of = table_of

    def check_columns(self, columns: Sequence[Column], table: str) -> None:
        check_columns(columns, table)

    def why_not(self, lake_key: str) -> str | None:
        return "rounds rely on it" if lake_key.startswith(_RESERVED) else None

    def exists(self, path: TablePath) -> bool:
        return bool(self._table_of(path).versions())

    def open_log(self, path: TablePath) -> LanceSnapshotLog:
        return LanceSnapshotLog(self._table_of(path))

    def columns(self, ground: LanceGround) -> Sequence[Column]:
        return parse_columns(ground.dataset.schema)

    def properties(self, ground: LanceGround) -> Mapping[str, str]:
        return ground.properties

    def layout(self, ground: LanceGround) -> Mapping[str, str]:
        config = ground.properties
        return {"primary key": config.get(_PRIMARY_KEY, ""), "partitions": config.get(_PARTITION_KEYS, "")}

    def make(self, table: TableInfo, properties: Mapping[str, str]) -> bool:
        """The first version has no properties: the second is the one that shows."""
        descriptor = table.descriptor
        schema = table_schema(descriptor.schema.columns)
        own = {_PRIMARY_KEY: ",".join(descriptor.primary_key), _PARTITION_KEYS: ",".join(descriptor.partition_keys)}
        update = lance.LanceOperation.UpdateMap({**properties, **own})
        with tempfile.TemporaryDirectory(prefix="lakeward-lance-") as folder:
            lance.write_dataset(schema.empty_table(), folder, schema=schema, data_storage_version=_FILE_VERSION)
            apply(folder, 1, lance.LanceOperation.UpdateConfig(config_updates=update), {ALTER_KEY: "true"})
            return self._table_of(table.path).publish(folder, 2)

    def put_columns(self, ground: LanceGround, table: TableInfo, columns: Sequence[Column]) -> bool:
        """The library numbers the new fields; they go before ours. No file is written: old rows have nulls there."""
        lake_table = self._table_of(table.path)
        with lake_table.stage(ground.version) as staged:
            grown = lance.dataset(staged)
            grown.add_columns(pa.schema([to_lance_field(c) for c in columns]))
            operation = lance.LanceOperation.Merge(
                fragments_of(grown), system_columns_last(grown.lance_schema), preserves_nullability=True
            )
        return lake_table.commit(ground.version, operation, {ALTER_KEY: "true"})

    def put_properties(self, ground: LanceGround, table: TableInfo, changes: Mapping[str, str | None]) -> bool:
        update = lance.LanceOperation.UpdateMap(dict(changes))
        operation = lance.LanceOperation.UpdateConfig(config_updates=update)
        return self._table_of(table.path).commit(ground.version, operation, {ALTER_KEY: "true"})
