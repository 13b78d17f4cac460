# SPDX-License-Identifier: Apache-2.0
"""`format("lakeward")`: the Data Source that Spark knows by name, for batch and streaming, reading and writing."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import datasource as ds

from lakeward.model.schema import BUCKET, CHANGE_TYPE, OFFSET, TIMESTAMP
from lakeward.model.table import TableInfo
from lakeward.read.spark.options import SourceOptions, parse_options
from lakeward.read.spark.schema import table_schema
from lakeward.read.spark.source_reader import UnionSourceReader
from lakeward.read.spark.stream import UnionStreamReader
from lakeward.spark.write import HotStreamWriter, HotWriter
from lakeward.spi.registry import load_hot

log = logging.getLogger(__name__)

SYSTEM = (BUCKET, OFFSET, TIMESTAMP)


class LakewardDataSource(ds.DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "lakeward"

    def schema(self) -> Any:
        parsed = self._parsed()
        table = self._table(parsed)
        columns = parsed.columns or table.schema.names
        return table_schema(table, columns, self._system(parsed, table))

    def reader(self, schema: Any) -> UnionSourceReader:
        log.info("format('lakeward') reads through Python workers; lakeward.spark.read(spark, ...) uses Spark's own Parquet scan")
        return UnionSourceReader(self._parsed(), tuple(schema.names))

    def streamReader(self, schema: Any) -> UnionStreamReader:
        return UnionStreamReader(self._parsed(), tuple(schema.names))

    def writer(self, schema: Any, overwrite: bool) -> HotWriter:
        return HotWriter(self._parsed(), tuple(schema.names), overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> HotStreamWriter:
        return HotStreamWriter(self._parsed(), tuple(schema.names))

    def _parsed(self) -> SourceOptions:
        return parse_options(dict(self.options))

    def _table(self, parsed: SourceOptions) -> TableInfo:
        return load_hot(parsed.hot_name, parsed.hot_options).store().load_table(parsed.table)

    def _system(self, parsed: SourceOptions, table: TableInfo) -> tuple[str, ...]:
        if not parsed.system_columns:
            return ()
        return (*SYSTEM, CHANGE_TYPE) if parsed.kind == "changelog" else SYSTEM
