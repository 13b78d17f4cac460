# SPDX-License-Identifier: Apache-2.0
"""DDL on Delta tables: a folder for each below the warehouse, its columns and properties in its log."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence

from lakeward.bucketing import check_bucket_keys
from lakeward.errors import InvalidAlter, InvalidTable, LakeMismatch, LakeUnavailable
from lakeward.lake.delta.log import DeltaGround
from lakeward.lake.delta.meta.actions import Action, DeltaTableState, commit_info
from lakeward.lake.delta.meta.columns import parse_schema_string, to_delta_type, to_schema_string
from lakeward.lake.delta.meta.failures import lake_errors
from lakeward.lake.delta.meta.features import VECTORS_KEY, protocol_of, why_not, with_features
from lakeward.lake.delta.meta.log import DeltaLog
from lakeward.lake.given import ANY, HISTORY, NUMBER, SWITCH, Allowed, check_allowed
from lakeward.lake.owner import check_owner
from lakeward.lake.partitionvalue import check_partition_keys
from lakeward.lake.tablefiles import TableFiles
from lakeward.lake.warehouse import check_warehouse
from lakeward.model.ids import TableId
from lakeward.model.schema import BUCKET, Column
from lakeward.model.table import TableDescriptor, TableInfo, TablePath
from lakeward.spi.lake import LakeCatalog, is_own
from lakeward.spi.snapshotkeys import TABLE_ID_KEY

_ATTEMPTS = 5
_PRIMARY_KEY = "lakeward.primary-key"
_RETENTION = {"delta.deletedFileRetentionDuration": "interval 7 days", "delta.logRetentionDuration": "interval 30 days"}
"""Longer than history is kept here: a `VACUUM` by others takes nothing that a snapshot of ours needs."""

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
"""What rounds read, and what Delta's own engines do that write or clean up beside them."""


class DeltaLakeCatalog(LakeCatalog):
    def __init__(self, files: TableFiles, warehouse: str, log_of: Callable[[TablePath], DeltaLog]) -> None:
        self._files, self._warehouse, self._log_of = files, warehouse, log_of

    def check(self) -> None:
        check_warehouse("delta", self._files, self._warehouse)

    def check_descriptor(self, path: TablePath, descriptor: TableDescriptor) -> None:
        check_bucket_keys(descriptor)
        to_schema_string(descriptor.schema.columns, str(path))
        check_partition_keys(path, descriptor, "Delta")
        for key, value in descriptor.properties.items():
            if reason := why_not(lake_key(key)):
                raise InvalidTable(table=str(path), field=key, value=value, reason=reason)

    def create(self, table: TableInfo, *, adopt: bool = False) -> bool:
        self.check_descriptor(table.path, table.descriptor)
        log = self._log_of(table.path)
        if not log.listing().versions and log.append(0, _first_entry(table)):
            return True
        self.check_create(table, adopt=adopt)
        return False

    def check_create(self, table: TableInfo, *, adopt: bool = False) -> None:
        if not self.exists(table.path):
            return
        ground = DeltaGround.load(self._log_of(table.path))
        _check_match(ground.state, table)
        owner = ground.state.keys.get(TABLE_ID_KEY)
        check_owner(table, owner, has_snapshots=ground.head is not None, adopt=adopt)

    def validate(self, table: TableInfo) -> None:
        _check_match(self._log_of(table.path).load(), table)

    def check_given(self, path: TablePath, properties: Mapping[str, str], said: Collection[str]) -> None:
        check_allowed(path, "delta.", properties, said, _ALLOWED)

    def check_alter(self, table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
        _check_changes(table, columns, changes)
        _grown(table, self._log_of(table.path).load(), columns)

    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> None:
        _check_changes(table, columns, {})
        self._alter(table, "ADD COLUMNS", lambda state: _grown(table, state, columns))

    def set_properties(self, table: TableInfo, changes: Mapping[str, str | None]) -> None:
        _check_changes(table, (), changes)

        def changed(state: DeltaTableState) -> Action:
            wanted = {**state.properties, **{lake_key(k): v for k, v in changes.items()}}
            return {**state.metadata, "configuration": {k: v for k, v in wanted.items() if v is not None}}

        self._alter(table, "SET TBLPROPERTIES", changed)

    def exists(self, path: TablePath) -> bool:
        return bool(self._log_of(path).listing().versions)

    def location(self, path: TablePath) -> str:
        return f"{self._warehouse}/{path.database}/{path.table}"

    def table_id(self, path: TablePath) -> TableId | None:
        owner = self._log_of(path).load().keys.get(TABLE_ID_KEY)
        return None if owner is None else TableId(owner)

    def drop(self, path: TablePath) -> None:
        with lake_errors(str(path), "drop"):
            self._files.remove_folder(self.location(path))

    def is_own_and_empty(self, path: TablePath) -> bool:
        ground = DeltaGround.load(self._log_of(path))
        return is_own(ground.state.properties) and ground.head is None

    def _alter(self, table: TableInfo, operation: str, change: Callable[[DeltaTableState], Action]) -> None:
        """On whatever version is there: rounds commit meanwhile."""
        log = self._log_of(table.path)
        for _ in range(_ATTEMPTS):
            state = log.load()
            metadata = change(state)
            if metadata == state.metadata:
                return
            info = {"commitInfo": commit_info(operation)}
            if log.append(state.version + 1, [info, *with_features(state, metadata)]):
                return
        raise LakeUnavailable(lake="delta", what=f"alter {table.path}", reason="others kept committing")


def lake_key(key: str) -> str:
    """`delta.X` is Delta's own, but for retention, which is ours; anything else is kept for the hot side's eyes."""
    if key.startswith(("delta.history.", "delta.write.")):
        return f"lakeward.{key.removeprefix('delta.')}"
    return key if key.startswith(("delta.", "lakeward.")) else f"fluss.{key}"


def _check_changes(table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
    for column in columns:
        to_delta_type(column.type, f"{table.path}.{column.name}")
        if not column.type.nullable:
            reason = "an added column must be nullable"
            raise InvalidAlter(table=str(table.path), change=f"add {column.name}", reason=reason)
    for key in changes:
        if why := why_not(lake_key(key)):
            raise InvalidAlter(table=str(table.path), change=f"property {key}", reason=why)


def _grown(table: TableInfo, state: DeltaTableState, columns: Sequence[Column]) -> Action:
    """The table's metadata with these columns. Raises `LakeMismatch`."""
    have = {c.name: c for c in parse_schema_string(state.metadata["schemaString"])}
    for column in columns:
        there = have.setdefault(column.name, column)
        if there.type != column.type:
            diff = f"column {column.name}: lake {there.type}, wanted {column.type}"
            raise LakeMismatch(table=str(table.path), diff=diff)
    return {**state.metadata, "schemaString": to_schema_string(list(have.values()), str(table.path))}


def _first_entry(table: TableInfo) -> list[Action]:
    descriptor = table.descriptor
    given = {lake_key(k): v for k, v in descriptor.properties.items()}
    vectors = {VECTORS_KEY: "true"} if table.is_pk else {}
    schema_string = to_schema_string(descriptor.schema.columns, str(table.path))
    metadata = {
        "id": str(uuid.uuid4()),
        "name": str(table.path),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_string,
        "partitionColumns": [*descriptor.partition_keys, BUCKET],
        "configuration": {**_RETENTION, **given, **vectors, _PRIMARY_KEY: ",".join(descriptor.primary_key)},
        "createdTime": int(time.time() * 1000),
    }
    protocol = protocol_of(schema_string, has_vectors=table.is_pk)
    return [{"commitInfo": commit_info("CREATE TABLE")}, {"protocol": protocol}, {"metaData": metadata}]


def _check_match(state: DeltaTableState, table: TableInfo) -> None:
    wanted = table.descriptor
    there = {c.name: str(c.type) for c in parse_schema_string(state.metadata["schemaString"])}
    due = {c.name: str(c.type) for c in wanted.schema.columns}
    diff = [
        f"column {name}: lake {there.get(name, 'has none')}, wanted {due.get(name, 'none')}"
        for name in dict.fromkeys((*there, *due))
        if there.get(name) != due.get(name)
    ]
    if not diff and list(there) != list(due):
        diff.append(f"column order: lake {', '.join(there)}, wanted {', '.join(due)}")
    pairs = (
        ("primary key", state.properties.get(_PRIMARY_KEY, ""), ",".join(wanted.primary_key)),
        ("partitions", ",".join(state.partition_columns), ",".join((*wanted.partition_keys, BUCKET))),
    )
    diff += [f"{what}: lake {have or 'none'}, wanted {want or 'none'}" for what, have, want in pairs if have != want]
    if diff:
        raise LakeMismatch(table=str(table.path), diff="; ".join(diff))
