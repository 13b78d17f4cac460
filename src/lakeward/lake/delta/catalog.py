# SPDX-License-Identifier: Apache-2.0
"""DDL on Delta tables: each is a folder below the warehouse, with columns and properties in its log."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from lakeward.lake.core.catalog import ANY, HISTORY, NUMBER, SWITCH, Allowed
from lakeward.lake.core.columnmap import ColumnMap, MappedCatalog, StoredColumn
from lakeward.lake.delta.columns import parse_schema_string, to_schema_string
from lakeward.lake.delta.evolve import evolve_metadata
from lakeward.lake.delta.log import DeltaGround, DeltaSnapshotLog
from lakeward.lake.delta.meta.actions import Action, commit_info
from lakeward.lake.delta.meta.features import VECTORS_KEY, protocol_of, why_not, with_features
from lakeward.lake.delta.meta.log import DeltaLog
from lakeward.lake.warehouse import Warehouse
from lakeward.model import BUCKET, Column, ColumnChange, TableDescriptor, TableInfo, TablePath, diff_schemas

PRIMARY_KEY = "lakeward.primary-key"
_RETENTION = {"delta.deletedFileRetentionDuration": "interval 7 days", "delta.logRetentionDuration": "interval 30 days"}
"""Longer than Lakeward retains history: a `VACUUM` by other engines deletes no file that one of our snapshots needs."""

_INTERVAL = Allowed(r"(interval\s+)?\d+\s+(second|minute|hour|day|week)s?", "an interval such as `interval 7 days`")
_ALLOWED = {
    **HISTORY,
    "checkpointInterval": NUMBER,
    "targetFileSize": NUMBER,
    "deletedFileRetentionDuration": _INTERVAL,
    "logRetentionDuration": _INTERVAL,
    "setTransactionRetentionDuration": _INTERVAL,
    "enableExpiredLogCleanup": SWITCH,
    "checkpoint.writeStatsAsJson": SWITCH,
    "checkpoint.writeStatsAsStruct": SWITCH,
    "dataSkippingNumIndexedCols": Allowed(r"-1|\d+", "a whole number, or -1"),
    "dataSkippingStatsColumns": ANY,
    "autoOptimize.": ANY,
    "tuneFileSizesForRewrites": SWITCH,
    "randomizeFilePrefixes": SWITCH,
    "randomPrefixLength": NUMBER,
}
"""Properties that rounds read, and properties of Delta's own engines that write or clean up at the same time."""


MAPPING_NOTE = (
    "its readers need column mapping from now on: delta-spark, DuckDB and SQL of delta-rs have it; to_pyarrow_table of "
    "delta-rs and Polars refuse the table"
)
WIDENING_NOTE = (
    "its readers need type widening from now on: delta-spark and DuckDB have it; delta-rs and Polars refuse the table"
)


class DeltaLakeCatalog(MappedCatalog[DeltaGround]):
    lake, allowed = "delta", _ALLOWED

    def __init__(self, warehouse: Warehouse, log_of: Callable[[TablePath], DeltaLog]) -> None:
        super().__init__(warehouse)
        self._log_of = log_of

    def check_columns(self, columns: Sequence[Column], table: str) -> None:
        to_schema_string(columns, table)

    def why_not(self, lake_key: str) -> str | None:
        return why_not(lake_key)

    def exists(self, path: TablePath) -> bool:
        return bool(self._log_of(path).listing().versions)

    def open_log(self, path: TablePath) -> DeltaSnapshotLog:
        return DeltaSnapshotLog(self._log_of(path))

    def stored(self, ground: DeltaGround) -> Sequence[StoredColumn]:
        return parse_schema_string(ground.state.metadata["schemaString"])

    def properties(self, ground: DeltaGround) -> Mapping[str, str]:
        return ground.state.properties

    def layout(self, ground: DeltaGround) -> Mapping[str, str]:
        state = ground.state
        return {
            "primary key": state.properties.get(PRIMARY_KEY, ""),
            "partitions": ",".join(state.partition_columns),
        }

    def expected_layout(self, descriptor: TableDescriptor) -> Mapping[str, str]:
        partitions = ",".join((*descriptor.partition_keys, BUCKET))
        return {"primary key": ",".join(descriptor.primary_key), "partitions": partitions}

    def make(self, table: TableInfo, properties: Mapping[str, str]) -> bool:
        descriptor = table.descriptor
        vectors = {VECTORS_KEY: "true"} if table.is_pk else {}
        schema_string = to_schema_string(descriptor.schema.columns, str(table.path))
        primary_key = {PRIMARY_KEY: ",".join(descriptor.primary_key)}
        metadata = {
            "id": str(uuid.uuid4()),
            "name": str(table.path),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_string,
            "partitionColumns": [*descriptor.partition_keys, BUCKET],
            "configuration": {**_RETENTION, **properties, **vectors, **primary_key},
            "createdTime": int(time.time() * 1000),
        }
        protocol = protocol_of(metadata)
        info = {"commitInfo": commit_info("CREATE TABLE")}
        return self._log_of(table.path).append(0, [info, {"protocol": protocol}, {"metaData": metadata}])

    def put_evolved(
        self, ground: DeltaGround, table: TableInfo, columns: Sequence[StoredColumn], column_map: ColumnMap
    ) -> bool:
        evolved = evolve_metadata(ground.state, table, columns, column_map)
        primary_key = {PRIMARY_KEY: ",".join(table.descriptor.primary_key)}
        configuration = {**ground.properties, **evolved["configuration"], **primary_key}
        return self._put(ground, table, "CHANGE COLUMNS", {**evolved, "configuration": configuration})

    def evolve_notes(self, table: TableInfo, after: TableInfo) -> tuple[str, ...]:
        kinds = {one.kind for one in diff_schemas(table.schema, after.schema)}
        notes = [MAPPING_NOTE] if kinds & {ColumnChange.RENAME, ColumnChange.DROP} else []
        return (*notes, *([WIDENING_NOTE] if ColumnChange.WIDEN in kinds else []))

    def put_properties(self, ground: DeltaGround, table: TableInfo, changes: Mapping[str, str | None]) -> bool:
        wanted = {**ground.state.properties, **changes}
        kept = {k: v for k, v in wanted.items() if v is not None}
        return self._put(ground, table, "SET TBLPROPERTIES", {"configuration": kept})

    def _put(self, ground: DeltaGround, table: TableInfo, operation: str, change: Action) -> bool:
        state = ground.state
        actions = with_features(state, {**state.metadata, **change})
        return self._log_of(table.path).append(state.version + 1, [{"commitInfo": commit_info(operation)}, *actions])
