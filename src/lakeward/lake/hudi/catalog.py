# SPDX-License-Identifier: Apache-2.0
"""DDL on Hudi tables: a folder for each below the warehouse, its columns and properties in `hoodie.properties`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from lakeward.bucketing import check_bucket_keys
from lakeward.errors import InvalidAlter, InvalidTable, LakeMismatch, UnsupportedType
from lakeward.lake.core.catalog import check_owner
from lakeward.lake.core.historylimit import new_history
from lakeward.lake.given import ANY, HISTORY, NUMBER, check_allowed
from lakeward.lake.hudi import lake_errors
from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.landing import make_folders
from lakeward.lake.hudi.meta.columns import (
    NAMES,
    RESERVED,
    decode_columns,
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
from lakeward.lake.partitionvalue import check_partition_keys
from lakeward.lake.tablefiles import LocalFiles
from lakeward.lake.warehouse import check_warehouse
from lakeward.model.ids import TableId
from lakeward.model.schema import Column
from lakeward.model.table import BucketFunction, TableDescriptor, TableInfo, TablePath
from lakeward.model.typetable import row_of
from lakeward.spi.lake.catalog import LakeCatalog, is_own
from lakeward.spi.snapshotkeys import TABLE_ID_KEY

_SETTABLE = ("hoodie.parquet.",)
"""Hudi's own properties that people may set: rounds rely on the others."""

_ALLOWED = {**HISTORY, "hoodie.parquet.max.file.size": NUMBER, "hoodie.parquet.": ANY}


class HudiLakeCatalog(LakeCatalog):
    def __init__(self, files: LocalFiles, warehouse: str, table_of: Callable[[TablePath], HudiTable]) -> None:
        self._files, self._warehouse, self._table_of = files, warehouse, table_of

    def check(self) -> None:
        check_warehouse("hudi", self._files, self._warehouse)

    def check_descriptor(self, path: TablePath, descriptor: TableDescriptor) -> None:
        check_bucket_keys(descriptor)
        for column in descriptor.schema.columns:
            if column.name.startswith(RESERVED):
                reason = f"Hudi keeps names that begin with {RESERVED} for itself"
                raise InvalidTable(table=str(path), field="column", value=column.name, reason=reason)
        if odd := find_odd_name(descriptor.schema.columns):
            raise InvalidTable(table=str(path), field="column", value=odd, reason=NAMES)
        to_avro_schema(descriptor.schema.columns, path.table)
        for name in descriptor.primary_key:
            kind = descriptor.schema.column(name).type
            if BucketFunction.HUDI not in row_of(kind).bucket_key_of:
                reason = "a record key is a text, and Hudi spells none for this type; take a STRING, as hexadecimal"
                raise UnsupportedType(where=f"{path}, primary key {name}", type=str(kind), by="Hudi", reason=reason)
        check_partition_keys(path, descriptor)
        for key in descriptor.properties:
            if why := why_not(key):
                value = descriptor.properties[key]
                raise InvalidTable(table=str(path), field=key, value=value, reason=why)

    def create(self, table: TableInfo, *, adopt: bool = False) -> bool:
        self.check_descriptor(table.path, table.descriptor)
        there, properties = self._table_of(table.path), first_properties(table.path, table.descriptor)
        properties = {**new_history(), **properties}
        with lake_errors(str(table.path), "create"):
            make_folders(there.root)
            if self._files.put_exclusively(there.properties_path, format_properties(properties)):
                return True
        self.check_create(table, adopt=adopt)
        return False

    def check_create(self, table: TableInfo, *, adopt: bool = False) -> None:
        if not self.exists(table.path):
            return
        ground = HudiGround.load(self._table_of(table.path))
        _check_match(ground, table)
        owner = ground.newest_ours().get(TABLE_ID_KEY)
        check_owner(table, owner, has_snapshots=ground.timeline.head is not None, adopt=adopt)

    def validate(self, table: TableInfo) -> None:
        _check_match(HudiGround.load(self._table_of(table.path)), table)

    def reconcile_schema(self, table: TableInfo, *, dry_run: bool = False) -> tuple[str, ...]:
        """Properties go back to what rounds rely on; columns and keys must match."""
        there = self._table_of(table.path)
        found = there.load_properties()
        due = wrong_properties(found)
        if VERSION_KEY in due:
            change = f"table version {found.get(VERSION_KEY)}"
            reason = f"another engine upgraded it; {DOWNGRADE}"
            raise InvalidAlter(table=str(table.path), change=change, reason=reason)
        if due and not dry_run:
            with lake_errors(str(table.path), "alter"):
                there.change_properties(lambda properties: {**properties, **due})
        if not dry_run:
            self.validate(table)
        return tuple(spell_properties(found, due))

    def check_given(self, path: TablePath, properties: Mapping[str, str], said: Collection[str]) -> None:
        check_allowed(path, "hudi.", properties, said, _ALLOWED)

    def check_alter(self, table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
        _check_changes(table, columns, changes)
        with lake_errors(str(table.path), "alter"):
            _grown(table, self._table_of(table.path).load_properties(), columns)

    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> None:
        """Engines see a new column with the next commit, as Hudi's own do."""
        _check_changes(table, columns, {})
        with lake_errors(str(table.path), "alter"):
            self._table_of(table.path).change_properties(lambda properties: _grown(table, properties, columns))

    def set_properties(self, table: TableInfo, changes: Mapping[str, str | None]) -> None:
        _check_changes(table, (), changes)

        def changed(properties: dict[str, str]) -> dict[str, str]:
            own = new_history()
            wanted = {
                **properties,
                **{lake_key(k): own.get(lake_key(k)) if v is None else v for k, v in changes.items()},
            }
            return {k: v for k, v in wanted.items() if v is not None}

        with lake_errors(str(table.path), "alter"):
            self._table_of(table.path).change_properties(changed)

    def exists(self, path: TablePath) -> bool:
        return self._table_of(path).exists()

    def location(self, path: TablePath) -> str:
        return self._table_of(path).root

    def table_id(self, path: TablePath) -> TableId | None:
        owner = HudiGround.load(self._table_of(path)).newest_ours().get(TABLE_ID_KEY)
        return None if owner is None else TableId(owner)

    def drop(self, path: TablePath) -> None:
        with lake_errors(str(path), "drop"):
            self._files.remove_folder(self.location(path))

    def is_own_and_empty(self, path: TablePath) -> bool:
        ground = HudiGround.load(self._table_of(path))
        return is_own(ground.properties) and ground.timeline.head is None


def why_not(key: str) -> str | None:
    """Why a property is not set, in words."""
    hudi = lake_key(key)
    if hudi in (COLUMNS_KEY, PRIMARY_KEY) or (hudi.startswith("hoodie.") and not hudi.startswith(_SETTABLE)):
        return "rounds rely on it; of Hudi's own those that begin with hudi.hoodie.parquet. may be set"
    return None


def _check_changes(table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
    if odd := find_odd_name(columns):
        raise InvalidAlter(table=str(table.path), change=f"add {odd}", reason=NAMES)
    for column in columns:
        to_avro_type(column.type, f"{table.path}.{column.name}", "hoodie")
        if not column.type.nullable or column.name.startswith(RESERVED):
            reason = f"an added column is nullable, and does not begin with {RESERVED}"
            raise InvalidAlter(table=str(table.path), change=f"add {column.name}", reason=reason)
    for key in changes:
        if why := why_not(key):
            raise InvalidAlter(table=str(table.path), change=f"property {key}", reason=why)


def _grown(table: TableInfo, properties: Mapping[str, str], columns: Sequence[Column]) -> dict[str, str]:
    """The table's properties with these columns. Raises `LakeMismatch`."""
    have = {c.name: c for c in decode_columns(properties[COLUMNS_KEY])}
    for column in columns:
        there = have.setdefault(column.name, column)
        if there.type != column.type:
            diff = f"column {column.name}: lake {there.type}, wanted {column.type}"
            raise LakeMismatch(table=str(table.path), diff=diff)
    avro = to_avro_schema(list(have.values()), table.path.table)
    encoded = encode_columns(list(have.values()))
    return {**properties, COLUMNS_KEY: encoded, "hoodie.table.create.schema": avro}


def _check_match(ground: HudiGround, table: TableInfo) -> None:
    wanted, have = table.descriptor, ground.properties
    types = {c.name: str(c.type) for c in ground.columns}
    due = {c.name: str(c.type) for c in wanted.schema.columns}
    diff = [
        f"column {name}: lake {types.get(name, 'has none')}, wanted {due.get(name, 'none')}"
        for name in dict.fromkeys((*types, *due))
        if types.get(name) != due.get(name)
    ]
    if not diff and list(types) != list(due):
        diff.append(f"column order: lake {', '.join(types)}, wanted {', '.join(due)}")
    pairs = (
        ("primary key", have.get(PRIMARY_KEY, ""), ",".join(wanted.primary_key)),
        ("record key", have.get("hoodie.table.recordkey.fields", ""), ",".join(record_key_fields(wanted))),
        ("partitions", have.get("hoodie.table.partition.fields", ""), ",".join(wanted.partition_keys)),
        ("merge mode", have.get("hoodie.record.merge.mode", ""), "COMMIT_TIME_ORDERING"),
    )
    diff += [
        f"{what}: lake {is_now or 'none'}, wanted {want or 'none'}" for what, is_now, want in pairs if is_now != want
    ]
    if diff:
        raise LakeMismatch(table=str(table.path), diff="; ".join(diff))
