# SPDX-License-Identifier: Apache-2.0
"""DDL on Iceberg tables: create, validate, add columns, set properties, repair changes of other engines."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow.compute as pc
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema as LakeSchema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, UNSORTED_SORT_ORDER_ID
from pyiceberg.table.update import (
    AddSortOrderUpdate,
    AssertCurrentSchemaId,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    update_table_metadata,
)

from lakeward.errors import (
    InvalidAlter,
    InvalidTable,
    LakeMismatch,
    LakeNotEmpty,
    LakeSchemaBroken,
    LakeTableGone,
    LakeUnavailable,
)
from lakeward.lake.core.columns import SYSTEM
from lakeward.lake.core.failures import explain
from lakeward.lake.iceberg.connect.connection import as_planned, identifier
from lakeward.lake.iceberg.connect.forward import newest_table_id
from lakeward.lake.iceberg.given import check_given
from lakeward.lake.iceberg.meta.columnids import find_field_ids, recorded_ids
from lakeward.lake.iceberg.meta.diff import check_fits, diff_table
from lakeward.lake.iceberg.meta.evolve import plan_evolution
from lakeward.lake.iceberg.meta.expiry import AGE_KEY
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.foreign import ADOPTED, ADOPTED_TAG, NAME_MAPPING, describe_foreign
from lakeward.lake.iceberg.meta.mapping import (
    DEFAULTS,
    LAKE_PREFIX,
    MERGE_ON_READ,
    VERSION_KEY,
    check_descriptor,
    lake_key,
    lake_order,
    lake_properties,
    lake_schema,
    lake_spec,
)
from lakeward.lake.iceberg.meta.ownpaths import check_path
from lakeward.lake.iceberg.meta.partition import check_times
from lakeward.lake.iceberg.meta.repair import SchemaRepair, plan_repair
from lakeward.lake.iceberg.meta.tableproperties import refused_names
from lakeward.lake.iceberg.meta.types import to_arrow_schema
from lakeward.lake.iceberg.meta.version import VERSIONS, check_version
from lakeward.lake.iceberg.reader import pinned_reader
from lakeward.lake.iceberg.scan.project import Footer
from lakeward.lake.iceberg.scan.snapshotfiles import plan_files
from lakeward.lake.iceberg.tables import IcebergTables
from lakeward.model import Column, SnapshotId, TableDescriptor, TableInfo, TablePath, from_arrow_schema

_RESERVED = frozenset({*MERGE_ON_READ, "write.format.default", ADOPTED})
"""Lake properties that users may not change: rounds rely on them."""


class IcebergLakeCatalog(IcebergTables):
    def create(self, table: TableInfo, *, adopt: bool = False) -> bool:
        check_descriptor(table.path, table.descriptor)
        schema = lake_schema(table.descriptor, str(table.path))
        self._ensure_namespace(table.path)
        try:
            properties = lake_properties(table.descriptor)
            for name in refused_names(properties, self._connection.allowed_properties):
                del properties[name]  # in a table created before it was refused
            version = properties[VERSION_KEY]
            with lake_errors(str(table.path), "create table"), _writing_version(table, version):
                new_table = self._connection.catalog.create_table(
                    identifier(table.path),
                    schema,
                    partition_spec=lake_spec(table.descriptor, schema),
                    sort_order=lake_order(schema),
                    properties=properties,
                )
                self._allow_unsorted(new_table)
            return True
        except TableAlreadyExistsError:
            self._take(table, adopt=adopt)
            return False

    def _allow_unsorted(self, table: Table) -> None:
        """Adds the unsorted order to the table: Java's rewrites write files without a sort order, and refuse to if the
        table does not list it."""
        if UNSORTED_SORT_ORDER_ID not in {o.order_id for o in table.metadata.sort_orders}:
            order = AddSortOrderUpdate.model_validate({"sort-order": UNSORTED_SORT_ORDER})
            self._connection.catalog.commit_table(table, (), (order,))

    def _take(self, table: TableInfo, *, adopt: bool) -> None:
        """Accepts an existing table: it must match, and be empty, ours or adopted explicitly."""
        lake_table = self._connection.load(table.path)
        self._check_takes(table, lake_table, adopt=adopt)
        if not lake_table.metadata.snapshots or adopt:
            with _altering(table):
                self._allow_unsorted(lake_table)

    def check_create(self, table: TableInfo, *, adopt: bool = False) -> None:
        try:
            self._check_takes(table, self._connection.load(table.path), adopt=adopt)
        except LakeTableGone:
            return

    def _check_takes(self, table: TableInfo, lake_table: Table, *, adopt: bool) -> None:
        self._check_matches(table, lake_table)
        if lake_table.metadata.snapshots and not adopt and newest_table_id(lake_table.metadata) != table.table_id:
            raise LakeNotEmpty(table=str(table.path))

    def describe_foreign(
        self, path: TablePath, bucket_count: int = 1, primary_key: Sequence[str] = ()
    ) -> TableDescriptor:
        lake_table = self._connection.load(path)
        descriptor = describe_foreign(path, lake_table.metadata, bucket_count, primary_key)
        head = lake_table.current_snapshot()
        with lake_errors(str(path), "list files of"):
            for planned in plan_files(lake_table.metadata, lake_table.io, head, ()) if head is not None else ():
                check_path(lake_table.io, planned.file.file_path)
                _check_readable(path, lake_table, planned.file)
                check_times(str(path), lake_table.specs()[planned.indexed.spec_id], lake_table.schema(), planned.file)
        return descriptor

    def warn_foreign(self, path: TablePath) -> tuple[str, ...]:
        """Upkeep expires snapshots of the table's owner too."""
        metadata = self._connection.load(path).metadata
        if AGE_KEY in metadata.properties or len(metadata.snapshots) < 2:
            return ()
        minutes = int(DEFAULTS[AGE_KEY]) // 60_000
        return (
            f"older snapshots of {path} expire {minutes} minutes after the next one, all but that which is tagged "
            f"{ADOPTED_TAG}, as the table has no {AGE_KEY}; to keep a week of them: "
            f"lakeward table alter {path} --set {LAKE_PREFIX}{AGE_KEY}=604800000",
        )

    def validate(self, table: TableInfo) -> None:
        self._check_matches(table, self._connection.load(table.path))

    def _check_matches(self, table: TableInfo, lake_table: Table) -> None:
        lines = diff_table(table.descriptor, lake_table.metadata)
        if lines:
            raise LakeMismatch(table=str(table.path), diff="; ".join(lines))

    def check_given(self, path: TablePath, properties: Mapping[str, str], said: Collection[str]) -> None:
        check_given(path, properties, said, self._connection.allowed_properties)

    def check_alter(self, table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
        lake_table = self._connection.load(table.path)
        if columns:
            self.check_evolve(table, table.with_schema(table.schema.with_added(columns)))
        _plan_properties(table, lake_table.metadata, changes)

    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> None:
        self.evolve(table, table.with_schema(table.schema.with_added(columns)))

    def check_evolve(self, table: TableInfo, after: TableInfo) -> None:
        lake_table, _ = self._plan_evolution(table, after)
        check_version(after.path, after.descriptor, int(lake_table.metadata.format_version))

    def evolve(self, table: TableInfo, after: TableInfo) -> None:
        lake_table, updates = self._plan_evolution(table, after)
        if updates:
            on = AssertCurrentSchemaId.model_validate({"current-schema-id": lake_table.metadata.current_schema_id})
            with _altering(table):
                self._connection.catalog.commit_table(lake_table, (on,), tuple(updates))

    def _plan_evolution(self, table: TableInfo, after: TableInfo) -> tuple[Table, list[TableUpdate]]:
        """Raises `LakeMismatch` if another engine changed a part that rounds need, and raises as `plan_evolution`."""
        lake_table = self._connection.load(table.path)
        try:  # foreign rows and moved files do not matter, as for a round
            check_fits(_known_to(table, lake_table), as_planned(lake_table, table).metadata)
        except LakeSchemaBroken as broken:
            raise LakeMismatch(table=str(table.path), diff=broken.diff) from broken
        return lake_table, plan_evolution(table, after, lake_table.metadata)

    def foreign_columns(self, table: TableInfo) -> Sequence[Column]:
        metadata = self._connection.load(table.path).metadata
        ours = {*recorded_ids(metadata).values(), *find_field_ids(metadata, table.schema).values()}
        foreign = [f for f in metadata.schema().fields if f.field_id not in ours and f.name not in SYSTEM]
        return from_arrow_schema(to_arrow_schema(LakeSchema(*foreign))) if foreign else ()

    def reconcile_schema(self, table: TableInfo, *, dry_run: bool = False) -> tuple[str, ...]:
        lake_table = self._connection.load(table.path)
        metadata = lake_table.metadata
        repair = plan_repair(table.descriptor, metadata)
        refused = repair.refused or tuple(self._nulls(table, lake_table, repair))
        if refused:
            raise InvalidAlter(table=str(table.path), change="reconcile-schema", reason="; ".join(refused))
        if repair.updates and not dry_run:
            on = AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id})
            with _altering(table):
                self._connection.catalog.commit_table(lake_table, (on,), repair.updates)
        return repair.changes

    def _nulls(self, table: TableInfo, lake_table: Table, repair: SchemaRepair) -> Iterator[str]:
        """Describes columns that cannot be NOT NULL again. Reads the rows of files that may have a null."""
        if not repair.not_null:
            return
        metadata = update_table_metadata(lake_table.metadata, repair.relaxed)
        before = Table(
            lake_table.name(), metadata, lake_table.metadata_location, lake_table.io, self._connection.catalog
        )
        head = before.current_snapshot()
        reader = pinned_reader(self._connection, table, before)
        for name in repair.not_null if head is not None else ():
            assert head is not None
            at, is_null = SnapshotId(str(head.snapshot_id)), pc.field(name).is_null()
            if any(b.num_rows for b in reader.scan(at, columns=[name], filter=is_null)):
                yield f"column {name}: it is NOT NULL here, and rows of others have no value; resync, or delete them"

    def set_properties(self, table: TableInfo, changes: Mapping[str, str | None]) -> None:
        lake_table = self._connection.load(table.path)
        updates = _plan_properties(table, lake_table.metadata, changes)
        if updates:
            with _altering(table), _writing_version(table, str(changes.get(f"{LAKE_PREFIX}{VERSION_KEY}"))):
                self._connection.catalog.commit_table(lake_table, (), tuple(updates))


@contextmanager
def _altering(table: TableInfo) -> Iterator[None]:
    """Translates errors of an ALTER. A commit that lost against other commits may be tried again by the caller."""
    try:
        with lake_errors(str(table.path), "alter"):
            yield
    except CommitFailedException as error:
        raise LakeUnavailable(lake="iceberg", what=f"alter {table.path}", reason=explain(error)) from error


@contextmanager
def _writing_version(table: TableInfo, version: str) -> Iterator[None]:
    """Refuses format version 3 for catalogs of PyIceberg that cannot write it: all but ours and REST."""
    try:
        yield
    except NotImplementedError as error:
        raise InvalidTable(
            table=str(table.path),
            field=f"{LAKE_PREFIX}{VERSION_KEY}",
            value=version,
            reason="this kind of catalog cannot write it; catalogs of type sql and rest can",
        ) from error


def _known_to(table: TableInfo, lake_table: Table) -> TableInfo:
    """Returns the table without columns that were added while the lake was off: those are added now."""
    there = find_field_ids(lake_table.metadata, table.schema)
    columns = tuple(c for c in table.schema.columns if c.column_id in there or not c.type.nullable)
    return table.with_schema(replace(table.schema, columns=columns)) if columns else table


def _plan_properties(table: TableInfo, metadata: TableMetadata, changes: Mapping[str, str | None]) -> list[TableUpdate]:
    """Raises `InvalidAlter`."""
    for key in changes:
        if lake_key(key) in _RESERVED:
            raise InvalidAlter(table=str(table.path), change=f"property {key}", reason="rounds rely on it")
    have, changed = metadata.properties, {lake_key(k): v for k, v in changes.items()}
    updates = _plan_upgrade(table, metadata, changed)
    _check_readers(table, metadata, changes)
    put = {k: v for k, v in changed.items() if v is not None and have.get(k) != v and k != VERSION_KEY}
    drop = [k for k, v in changed.items() if v is None and k in have]
    updates += [SetPropertiesUpdate(updates=put)] if put else []
    updates += [RemovePropertiesUpdate(removals=drop)] if drop else []
    return updates


def _check_readers(table: TableInfo, metadata: TableMetadata, changes: Mapping[str, str | None]) -> None:
    """Raises `InvalidTable` if a reader of the table could not read it after these changes."""
    properties = {k: v for k, v in {**table.descriptor.properties, **changes}.items() if v is not None}
    version = max(int(metadata.format_version), int(changes.get(f"{LAKE_PREFIX}{VERSION_KEY}") or 0))
    check_version(table.path, replace(table.descriptor, properties=properties), version)


def _plan_upgrade(table: TableInfo, metadata: TableMetadata, wanted: Mapping[str, str | None]) -> list[TableUpdate]:
    """Plans the upgrade to another format version, if requested. Raises `InvalidAlter`."""
    version, at = wanted.get(VERSION_KEY, ""), int(metadata.format_version)
    if version in ("", str(at)) or (version is None and at == min(VERSIONS)):
        return []
    if version == str(max(VERSIONS)):
        return [UpgradeFormatVersionUpdate.model_validate({"format-version": max(VERSIONS)})]
    back = version is None or version in map(str, VERSIONS)
    raise InvalidAlter(
        table=str(table.path),
        change=f"{LAKE_PREFIX}{VERSION_KEY} {version}",
        reason=f"it is at {at}, and no table goes back" if back else "versions 2 and 3 are written",
    )


def _check_readable(path: TablePath, table: Table, file: DataFile) -> None:
    """Raises `InvalidTable` for a file that cannot be read. Columns are matched by field id; imported files may have
    none."""
    reason = None
    if file.file_format != FileFormat.PARQUET:
        reason = f"it is a {file.file_format} file, and only Parquet is read; rewrite it first"
    elif NAME_MAPPING in table.metadata.properties:
        with table.io.new_input(file.file_path).open() as source:
            if not Footer.load(file.file_path, source).names:
                reason = "its columns have no field ids (it was imported as it is); rewrite it first"
    if reason is not None:
        raise InvalidTable(table=str(path), field="data file", value=file.file_path, reason=reason)
