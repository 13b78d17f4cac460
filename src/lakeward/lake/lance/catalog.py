# SPDX-License-Identifier: Apache-2.0
"""DDL on Lance tables: a folder for each below the warehouse, its columns and properties in its newest version."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence

import lance
import pyarrow as pa

from lakeward.bucketing import check_bucket_keys
from lakeward.errors import InvalidAlter, LakeMismatch, LakeUnavailable
from lakeward.lake.given import HISTORY, NUMBER, check_allowed
from lakeward.lake.lance.columns import (
    check_columns,
    parse_columns,
    system_columns_last,
    table_schema,
    to_lance_field,
)
from lakeward.lake.lance.failures import lake_errors
from lakeward.lake.lance.log import LanceGround
from lakeward.lake.lance.table import LanceTable, apply, fragments_of
from lakeward.lake.lance.versions import ALTER_KEY
from lakeward.lake.owner import check_owner
from lakeward.lake.partitionvalue import check_partition_keys
from lakeward.lake.tablefiles import TableFiles
from lakeward.lake.warehouse import check_warehouse
from lakeward.model.ids import TableId
from lakeward.model.schema import Column
from lakeward.model.table import TableDescriptor, TableInfo, TablePath
from lakeward.spi.lake import LakeCatalog, is_own
from lakeward.spi.snapshotkeys import TABLE_ID_KEY

_ATTEMPTS = 5
_PRIMARY_KEY, _PARTITION_KEYS = "lakeward.primary-key", "lakeward.partition-keys"
_RESERVED = (_PRIMARY_KEY, _PARTITION_KEYS, "lance.auto_cleanup.")
"""Lake properties that nobody may change: rounds rely on them, and history is kept as our own properties say."""

_ALLOWED = {**HISTORY, "write.target-file-size-bytes": NUMBER}
_FILE_VERSION = "2.2"
"""The format of data files that the library writes by itself since 14, and that other readers of it have."""


class LanceLakeCatalog(LakeCatalog):
    def __init__(self, files: TableFiles, warehouse: str, table_of: Callable[[TablePath], LanceTable]) -> None:
        self._files, self._warehouse, self._table_of = files, warehouse, table_of

    def check(self) -> None:
        check_warehouse("lance", self._files, self._warehouse)

    def check_descriptor(self, path: TablePath, descriptor: TableDescriptor) -> None:
        check_bucket_keys(descriptor)
        check_columns(descriptor.schema.columns, str(path))
        check_partition_keys(path, descriptor, "Lance")

    def create(self, table: TableInfo, *, adopt: bool = False) -> bool:
        self.check_descriptor(table.path, table.descriptor)
        lake_table = self._table_of(table.path)
        if not lake_table.versions() and _make(lake_table, table):
            return True
        self.check_create(table, adopt=adopt)
        return False

    def check_create(self, table: TableInfo, *, adopt: bool = False) -> None:
        if not self.exists(table.path):
            return
        ground = LanceGround.load(self._table_of(table.path))
        _check_match(ground, table)
        owner = ground.keys.get(TABLE_ID_KEY)
        check_owner(table, owner, has_snapshots=ground.head is not None, adopt=adopt)

    def validate(self, table: TableInfo) -> None:
        _check_match(LanceGround.load(self._table_of(table.path)), table)

    def check_given(self, path: TablePath, properties: Mapping[str, str], said: Collection[str]) -> None:
        check_allowed(path, "lance.", properties, said, _ALLOWED)

    def check_alter(self, table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
        _check_changes(table, columns, changes)
        _missing(table, LanceGround.load(self._table_of(table.path)), columns)

    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> None:
        _check_changes(table, columns, {})
        lake_table = self._table_of(table.path)

        def grown(ground: LanceGround) -> lance.LanceOperation.BaseOperation | None:
            missing = _missing(table, ground, columns)
            return _with_columns(lake_table, ground, missing) if missing else None

        self._alter(lake_table, grown)

    def set_properties(self, table: TableInfo, changes: Mapping[str, str | None]) -> None:
        _check_changes(table, (), changes)
        wanted = {lake_key(k): v for k, v in changes.items()}

        def changed(ground: LanceGround) -> lance.LanceOperation.BaseOperation | None:
            if all(ground.config.get(k) == v for k, v in wanted.items()):
                return None
            return lance.LanceOperation.UpdateConfig(config_updates=lance.LanceOperation.UpdateMap(dict(wanted)))

        self._alter(self._table_of(table.path), changed)

    def exists(self, path: TablePath) -> bool:
        return bool(self._table_of(path).versions())

    def location(self, path: TablePath) -> str:
        return self._table_of(path).root

    def table_id(self, path: TablePath) -> TableId | None:
        owner = LanceGround.load(self._table_of(path)).keys.get(TABLE_ID_KEY)
        return None if owner is None else TableId(owner)

    def drop(self, path: TablePath) -> None:
        with lake_errors(str(path), "drop"):
            self._files.remove_folder(self.location(path))

    def is_own_and_empty(self, path: TablePath) -> bool:
        ground = LanceGround.load(self._table_of(path))
        return is_own(ground.config) and ground.head is None

    def _alter(
        self, table: LanceTable, change: Callable[[LanceGround], lance.LanceOperation.BaseOperation | None]
    ) -> None:
        """On whatever version is there: rounds commit meanwhile."""
        for _ in range(_ATTEMPTS):
            ground = LanceGround.load(table)
            operation = change(ground)
            if operation is None or table.commit(ground.version, operation, {ALTER_KEY: "true"}):
                return
        raise LakeUnavailable(lake="lance", what=f"alter {table.name}", reason="others kept committing")


def lake_key(key: str) -> str:
    """`lance.X` is Lance's own, but for retention, which is ours; anything else is kept for the hot side's eyes."""
    if key.startswith(("lance.history.", "lance.write.")):
        return f"lakeward.{key.removeprefix('lance.')}"
    return key if key.startswith(("lance.", "lakeward.")) else f"fluss.{key}"


def _check_changes(table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
    check_columns(columns, str(table.path))
    for column in columns:
        if not column.type.nullable:
            reason = "an added column must be nullable"
            raise InvalidAlter(table=str(table.path), change=f"add {column.name}", reason=reason)
    for key in changes:
        if lake_key(key).startswith(_RESERVED):
            raise InvalidAlter(table=str(table.path), change=f"property {key}", reason="rounds rely on it")


def _missing(table: TableInfo, ground: LanceGround, columns: Sequence[Column]) -> list[Column]:
    """Those that the lake table has not yet. Raises `LakeMismatch`."""
    have = {c.name: c for c in parse_columns(ground.dataset.schema)}
    for column in columns:
        there = have.get(column.name, column)
        if there.type != column.type:
            diff = f"column {column.name}: lake {there.type}, wanted {column.type}"
            raise LakeMismatch(table=str(table.path), diff=diff)
    return [c for c in columns if c.name not in have]


def _make(lake_table: LanceTable, table: TableInfo) -> bool:
    """The first version has no properties: the second is the one that shows."""
    descriptor = table.descriptor
    schema = table_schema(descriptor.schema.columns)
    given = {lake_key(k): v for k, v in descriptor.properties.items()}
    own = {_PRIMARY_KEY: ",".join(descriptor.primary_key), _PARTITION_KEYS: ",".join(descriptor.partition_keys)}
    update = lance.LanceOperation.UpdateMap({**given, **own})
    with tempfile.TemporaryDirectory(prefix="lakeward-lance-") as folder:
        lance.write_dataset(schema.empty_table(), folder, schema=schema, data_storage_version=_FILE_VERSION)
        apply(folder, 1, lance.LanceOperation.UpdateConfig(config_updates=update), {ALTER_KEY: "true"})
        return lake_table.publish(folder, 2)


def _with_columns(
    table: LanceTable, ground: LanceGround, columns: Sequence[Column]
) -> lance.LanceOperation.BaseOperation:
    """The library numbers the new fields; they go before ours. No file is written: old rows have nulls there."""
    with table.stage(ground.version) as staged:
        grown = lance.dataset(staged)
        grown.add_columns(pa.schema([to_lance_field(c) for c in columns]))
        return lance.LanceOperation.Merge(
            fragments_of(grown), system_columns_last(grown.lance_schema), preserves_nullability=True
        )


def _check_match(ground: LanceGround, table: TableInfo) -> None:
    wanted = table.descriptor
    there = {c.name: str(c.type) for c in parse_columns(ground.dataset.schema)}
    due = {c.name: str(c.type) for c in wanted.schema.columns}
    diff = [
        f"column {name}: lake {there.get(name, 'has none')}, wanted {due.get(name, 'none')}"
        for name in dict.fromkeys((*there, *due))
        if there.get(name) != due.get(name)
    ]
    if not diff and list(there) != list(due):
        diff.append(f"column order: lake {', '.join(there)}, wanted {', '.join(due)}")
    config = ground.config
    pairs = (
        ("primary key", config.get(_PRIMARY_KEY, ""), ",".join(wanted.primary_key)),
        ("partitions", config.get(_PARTITION_KEYS, ""), ",".join(wanted.partition_keys)),
    )
    diff += [f"{what}: lake {have or 'none'}, wanted {want or 'none'}" for what, have, want in pairs if have != want]
    if diff:
        raise LakeMismatch(table=str(table.path), diff="; ".join(diff))
