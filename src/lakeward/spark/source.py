# SPDX-License-Identifier: Apache-2.0
"""`format("lakeward")`: the Data Source that Spark knows by name, for batch and streaming, reading and writing."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import datasource as ds

from lakeward.errors import InvalidRequest
from lakeward.model import CHANGE_TYPE, LAKE_NAMES, TableInfo
from lakeward.read.request import ReadRequest, check_columns
from lakeward.read.spark.options import SourceOptions, parse_options
from lakeward.read.spark.schema import table_schema
from lakeward.read.spark.source_reader import FilteringSourceReader, UnionSourceReader, is_asked_for_filters
from lakeward.read.spark.stream import UnionStreamReader, check_stream
from lakeward.spark.write import HotStreamWriter, HotWriter
from lakeward.spi import load_hot

log = logging.getLogger(__name__)


class LakewardDataSource(ds.DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "lakeward"

    def schema(self) -> Any:
        parsed = self._parsed()
        table = self._table(parsed)
        columns = parsed.columns or table.schema.names
        check_columns(ReadRequest(path=table.path, columns=columns), table)
        system = (*(LAKE_NAMES if parsed.system_columns else ()), *((CHANGE_TYPE,) if parsed.changelog else ()))
        return table_schema(table, columns, system)

    def reader(self, schema: Any) -> UnionSourceReader:
        # A warning, as Spark's Python processes show nothing below.
        log.warning(
            "format('lakeward') reads through Python workers; lakeward.spark.read(spark, ...) uses Spark's own "
            "Parquet scan"
        )
        parsed = self._parsed()
        if parsed.changelog:
            raise InvalidRequest(what="option changelog", reason="a batch read gives rows, not changes; use readStream")
        kind = FilteringSourceReader if self.is_asked_for_filters() else UnionSourceReader
        return kind(parsed, schema)

    def is_asked_for_filters(self) -> bool:
        return is_asked_for_filters()

    def streamReader(self, schema: Any) -> UnionStreamReader:
        parsed = self._parsed()
        check_stream(parsed, self._table(parsed), tuple(schema.names))
        return UnionStreamReader(parsed, tuple(schema.names), schema)

    def writer(self, schema: Any, overwrite: bool) -> HotWriter:
        return HotWriter(self._parsed(), tuple(schema.names), overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> HotStreamWriter:
        return HotStreamWriter(self._parsed(), tuple(schema.names))

    def _parsed(self) -> SourceOptions:
        return parse_options(dict(self.options))

    def _table(self, parsed: SourceOptions) -> TableInfo:
        plugin = load_hot(parsed.hot_name, parsed.hot_options)
        plugin.reach()
        return plugin.store().load_table(parsed.table)
