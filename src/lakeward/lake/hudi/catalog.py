# SPDX-License-Identifier: Apache-2.0
"""DDL on Hudi tables: each is a folder below the warehouse, with columns and properties in `hoodie.properties`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lakeward.errors import InvalidAlter, InvalidTable, UnsupportedType
from lakeward.lake.core.catalog import ANY, HISTORY, NUMBER
from lakeward.lake.core.columnmap import ColumnMap, MappedCatalog, StoredColumn
from lakeward.lake.hudi import lake_errors
from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.landing import make_folders
from lakeward.lake.hudi.log import HudiSnapshotLog
from lakeward.lake.hudi.meta.columns import (
    NAMES,
    RESERVED,
    encode_columns,
    find_odd_name,
    to_avro_schema,
    to_avro_type,
)
from lakeward.lake.hudi.meta.properties import (
    COLUMNS_KEY,
    DOWNGRADE,
    PRIMARY_KEY,
    VERSION_KEY,
    first_properties,
    format_properties,
    lake_key,
    record_key_fields,
    spell_properties,
    wrong_properties,
)
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.warehouse import Warehouse
from lakeward.model import BucketFunction, Column, TableDescriptor, TableInfo, TablePath, row_of

_SETTABLE = ("hoodie.parquet.",)
"""Hudi's own properties that users may set: rounds rely on the others."""

_ALLOWED = {**HISTORY, "hoodie.parquet.max.file.size": NUMBER, "hoodie.parquet.": ANY}
_RECORD_KEY, _PARTITIONS = "hoodie.table.recordkey.fields", "hoodie.table.partition.fields"
_MERGE_MODE = "hoodie.record.merge.mode"


class HudiLakeCatalog(MappedCatalog[HudiGround]):
    lake, allowed = "hudi", _ALLOWED

    def __init__(self, warehouse: Warehouse, table_of: Callable[[TablePath], HudiTable]) -> None:
        super().__init__(warehouse)
        self._table_of = table_of

    def lake_key(self, key: str) -> str:
        return lake_key(key)

    def why_not(self, lake_key: str) -> str | None:
        is_own = lake_key.startswith("hoodie.") and not lake_key.startswith(_SETTABLE)
        if lake_key in (COLUMNS_KEY, PRIMARY_KEY) or is_own:
            return "rounds rely on it; of Hudi's own those that begin with hudi.hoodie.parquet. may be set"
        return None

    def check_columns(self, columns: Sequence[Column], table: str) -> None:
        for column in columns:
            if column.name.startswith(RESERVED):
                reason = f"Hudi keeps names that begin with {RESERVED} for itself"
                raise InvalidTable(table=table, field="column", value=column.name, reason=reason)
        if odd := find_odd_name(columns):
            raise InvalidTable(table=table, field="column", value=odd, reason=NAMES)
        for column in columns:
            to_avro_type(column.type, f"{table}.{column.name}", "hoodie")

    def check_descriptor(self, path: TablePath, descriptor: TableDescriptor) -> None:
        super().check_descriptor(path, descriptor)
        for name in descriptor.primary_key:
            kind = descriptor.schema.column(name).type
            if BucketFunction.HUDI not in row_of(kind).bucket_key_of:
                reason = "a record key is a text, and Hudi spells none for this type; take a STRING, as hexadecimal"
                raise UnsupportedType(where=f"{path}, primary key {name}", type=str(kind), by="Hudi", reason=reason)

    def exists(self, path: TablePath) -> bool:
        return self._table_of(path).exists()

    def open_log(self, path: TablePath) -> HudiSnapshotLog:
        return HudiSnapshotLog(self._table_of(path))

    def stored(self, ground: HudiGround) -> Sequence[StoredColumn]:
        """Hudi's readers match columns by name."""
        return [StoredColumn(c, c.name) for c in ground.columns]

    def properties(self, ground: HudiGround) -> Mapping[str, str]:
        return ground.properties

    def layout(self, ground: HudiGround) -> Mapping[str, str]:
        have = ground.properties
        return {
            "primary key": have.get(PRIMARY_KEY, ""),
            "record key": have.get(_RECORD_KEY, ""),
            "partitions": have.get(_PARTITIONS, ""),
            "merge mode": have.get(_MERGE_MODE, ""),
        }

    def expected_layout(self, descriptor: TableDescriptor) -> Mapping[str, str]:
        own = {"record key": ",".join(record_key_fields(descriptor)), "merge mode": "COMMIT_TIME_ORDERING"}
        return {**super().expected_layout(descriptor), **own}

    def make(self, table: TableInfo, properties: Mapping[str, str]) -> bool:
        there, first = self._table_of(table.path), first_properties(table.path, table.descriptor)
        with lake_errors(str(table.path), "create"):
            make_folders(there.root)
            return there.files.put_exclusively(there.properties_path, format_properties({**first, **properties}))

    def reconcile_schema(self, table: TableInfo, *, dry_run: bool = False) -> tuple[str, ...]:
        """Resets properties to values that rounds rely on; columns and keys must match."""
        hudi_table = self._table_of(table.path)
        have = hudi_table.load_properties()
        due = wrong_properties(have)
        if VERSION_KEY in due:
            change = f"table version {have.get(VERSION_KEY)}"
            reason = f"another engine upgraded it; {DOWNGRADE}"
            raise InvalidAlter(table=str(table.path), change=change, reason=reason)
        if due and not dry_run:
            self._change(table, lambda properties: {**properties, **due})
        if not dry_run:
            self.validate(table)
        return tuple(spell_properties(have, due))

    def put_evolved(
        self, ground: HudiGround, table: TableInfo, columns: Sequence[StoredColumn], column_map: ColumnMap
    ) -> bool:
        """Adds columns. Engines see them with the next commit, as with Hudi's own writers."""
        every = [c.column for c in columns]
        keys = {c.column.column_id: c.column.name for c in columns if c.column.column_id}
        mapped = replace(column_map, keys={**column_map.keys, **keys})

        is_same = list[bool]()

        def changed(properties: Mapping[str, str]) -> Mapping[str, str]:
            is_same.append(properties[COLUMNS_KEY] == ground.properties[COLUMNS_KEY])
            if not is_same[-1]:
                return properties
            avro = to_avro_schema(every, table.path.table)
            spelled = {COLUMNS_KEY: encode_columns(every), "hoodie.table.create.schema": avro}
            return {**properties, **spelled, **(mapped.to_properties() if mapped.schema_id else {})}

        return self._change(table, changed) and is_same[-1]

    def put_properties(self, ground: HudiGround, table: TableInfo, changes: Mapping[str, str | None]) -> bool:
        return self._change(table, lambda have: {k: v for k, v in {**have, **changes}.items() if v is not None})

    def _change(self, table: TableInfo, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> bool:
        """Changes properties under the table's lock, starting from their current values."""
        with lake_errors(str(table.path), "alter"):
            self._table_of(table.path).change_properties(change)
        return True
