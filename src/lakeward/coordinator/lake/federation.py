# SPDX-License-Identifier: Apache-2.0
"""DDL over both sides: the lake first, then the hot store, then the coordinator's record. Dropping never touches the
lake.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from lakeward.bucketing import check_bucket_keys, choose_function
from lakeward.config import options as keys
from lakeward.config.tables import check_alter, check_properties
from lakeward.coordinator.coordinator import Coordinator
from lakeward.coordinator.options import TableOptions, read_table_options
from lakeward.errors import InvalidAlter, InvalidRequest, LakeForeign, TableAlreadyExists, TableNotFound
from lakeward.model.ids import TableId, new_table_id
from lakeward.model.newtable import check_new_columns, check_new_table, warn_of_columns
from lakeward.model.schema import Column
from lakeward.model.state import TableState
from lakeward.model.table import BucketFunction, TableDescriptor, TableInfo, TablePath
from lakeward.protocol.operate import AdoptTable, LakeRestored, ResyncChoice, SchemaReconciled
from lakeward.protocol.tables import AlterTable, CreateTable, TableAnswer
from lakeward.spi.capabilities import check_added_columns, check_bucket_function, check_table
from lakeward.spi.lake import LakeCatalog


class Federation:
    """One DDL at a time: the calls are rare, and two creations of one name must not cross."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._board = coordinator.board
        self._hot = coordinator.board.hot
        self._lock = threading.Lock()

    # ---- create ----
    def create(self, request: CreateTable) -> TableAnswer:
        """Raises `TableAlreadyExists`, `LakeMismatch`, `LakeNotEmpty`, `InvalidInput` of many kinds, `LakeUnavailable`.

        A crash between the lake and the hot store leaves an empty lake table, which the next try takes."""
        with self._lock:
            existing = self._find(request.path)
            if existing is not None:
                if request.if_not_exists:
                    return TableAnswer(
                        table=existing, created=False, warnings=self._coordinator.warnings(existing.path)
                    )
                raise TableAlreadyExists(table=str(request.path))
            if not request.adopt:
                check_new_table(str(request.path), request.descriptor)
            descriptor, options = self._complete(request.path, request.descriptor)
            table = TableInfo(
                path=request.path,
                table_id=new_table_id(),
                descriptor=descriptor,
                created_at_ms=self._board.clock.now_ms(),
            )
            self._hot.check_table(table)
            if options.enabled:
                table = self._create_in_lake(table, options, request.adopt)
            elif request.adopt:
                raise InvalidRequest(what=f"adopting {request.path}", reason="the lake is not enabled for this table")
            self._hot.create_table(table)
            self._coordinator.register(table, new=not request.adopt)
        if request.adopt:
            self._coordinator.read_lake(table.path)
        warnings = warn_of_columns(descriptor.schema.columns) if options.enabled else ()
        return TableAnswer(table=table, created=True, warnings=(*self._coordinator.warnings(table.path), *warnings))

    def _find(self, path: TablePath) -> TableInfo | None:
        try:
            return self._hot.load_table(path)
        except TableNotFound:
            return None

    def _complete(self, path: TablePath, descriptor: TableDescriptor) -> tuple[TableDescriptor, TableOptions]:
        """The descriptor as it is recorded: checked, with the format and bucket function that it keeps for life."""
        check_properties(str(path), descriptor.properties, descriptor.partition_keys, self._board.options.config)
        options = read_table_options(descriptor.properties, self._board.options)
        properties = dict(descriptor.properties)
        if options.format is not None:
            properties.setdefault(keys.TABLE_DATALAKE_FORMAT.key, options.format)
        lake = None if options.format is None else self._board.lakes(options.format)
        own = BucketFunction.FLUSS if lake is None else lake.capabilities.bucket_function
        completed = replace(descriptor, properties=properties, bucket_function=choose_function(own, descriptor))
        check_bucket_keys(completed)
        self._check_fits(path, completed, options)
        return completed, options

    def _check_fits(self, path: TablePath, descriptor: TableDescriptor, options: TableOptions) -> None:
        """Can the table exist in its lake format? Raises `InvalidTable`, `UnsupportedType`, `UnsupportedBucketKey`."""
        if options.format is not None:
            check_table(options.format, self._board.lakes(options.format).capabilities, path, descriptor)
            self._catalog(options).check_descriptor(path, descriptor)

    def _create_in_lake(self, table: TableInfo, options: TableOptions, adopt: bool) -> TableInfo:
        catalog = self._catalog(options)
        if adopt:
            table = replace(table, table_id=self._adopted_id(catalog, table))
        catalog.create(table, adopt=adopt)
        return table

    def _adopted_id(self, catalog: LakeCatalog, table: TableInfo) -> TableId:
        """The id that the lake's snapshots carry; a lake table nobody tiered to gets the new one."""
        return catalog.table_id(table.path) or table.table_id

    def _catalog(self, options: TableOptions) -> LakeCatalog:
        assert options.format is not None
        return self._board.lakes(options.format).catalog()

    def adopt(self, path: TablePath, request: AdoptTable) -> TableAnswer:
        """Takes over a lake table that carries snapshots of ours: its table id and its offsets. Where the hot side is
        gone the descriptor makes it anew; where it stands, it must be the very table that filled the lake."""
        table = self._find(path)
        if table is None:
            if request.descriptor is None:
                raise InvalidRequest(what=f"adopting {path}", reason="the hot side does not exist: send its descriptor")
            return self.create(CreateTable(path=path, descriptor=request.descriptor, adopt=True))
        options = self._options_of(table)
        if options.format is None:
            raise InvalidRequest(what=f"adopting {path}", reason="the server has no datalake.format")
        if not options.enabled:
            return self.alter(path, AlterTable(properties={keys.TABLE_DATALAKE_ENABLED.key: "true"}))
        self._enable_lake(table, options)
        self._coordinator.read_lake(path)
        return TableAnswer(table=table, created=False, warnings=self._coordinator.warnings(path))

    # ---- alter ----
    def alter(self, path: TablePath, change: AlterTable) -> TableAnswer:
        """Columns and properties go to the lake first; then the lake is switched on or off if that was asked for."""
        with self._lock:
            before = self._hot.load_table(path)
            check_alter(str(path), change.properties)
            after = self._altered(before, change)
            was, wanted = read_table_options(before.descriptor.properties, self._board.options), self._options_of(after)
            if wanted.enabled and wanted.format is None:
                raise InvalidAlter(
                    table=str(path), change=keys.TABLE_DATALAKE_ENABLED.key, reason="the server has no datalake.format"
                )
            if was.enabled:
                self._alter_lake(before, was, change)
            if wanted.enabled and not was.enabled:
                self._enable_lake(after, wanted)
            self._hot.alter_table(after)
            self._coordinator.altered(after)
        if wanted.enabled and not was.enabled:
            self._coordinator.read_lake(path)
        added = warn_of_columns(Column.from_json(c) for c in change.add_columns) if wanted.enabled else ()
        return TableAnswer(table=after, created=False, warnings=(*self._coordinator.warnings(path), *added))

    def _options_of(self, table: TableInfo) -> TableOptions:
        return read_table_options(table.descriptor.properties, self._board.options)

    def _altered(self, table: TableInfo, change: AlterTable) -> TableInfo:
        descriptor = table.descriptor
        columns = [Column.from_json(c) for c in change.add_columns]
        check_new_columns(str(table.path), descriptor.schema.columns, columns)
        for column in columns:
            if not column.type.nullable:
                raise InvalidAlter(
                    table=str(table.path), change=f"add column {column.name}", reason="an added column must be nullable"
                )
        properties = {k: v for k, v in {**descriptor.properties, **change.properties}.items() if v is not None}
        check_properties(str(table.path), properties, descriptor.partition_keys, self._board.options.config)
        schema = descriptor.schema.with_added(columns) if columns else descriptor.schema
        return table.with_descriptor(replace(descriptor, schema=schema, properties=properties))

    def _alter_lake(self, table: TableInfo, options: TableOptions, change: AlterTable) -> None:
        catalog = self._catalog(options)
        if change.add_columns:
            assert options.format is not None
            names = [str(c["name"]) for c in change.add_columns]
            check_added_columns(options.format, self._board.lakes(options.format).capabilities, table.path, names)
            catalog.add_columns(table, [Column.from_json(c) for c in change.add_columns])
        if properties := _mutable(change.properties):
            catalog.set_properties(table, properties)

    def _enable_lake(self, table: TableInfo, options: TableOptions) -> None:
        """A lake table that this very table filled before is taken again; anybody else's is refused."""
        self._check_fits(table.path, table.descriptor, options)
        self._check_spread(table, options)
        catalog = self._catalog(options)
        owner = catalog.table_id(table.path) if catalog.exists(table.path) else None
        if owner is not None and owner != table.table_id:
            raise LakeForeign(table=str(table.path), found=owner, expected=table.table_id)
        if owner == table.table_id:
            self._catch_up_schema(catalog, table)
        catalog.create(table, adopt=owner == table.table_id)

    def _check_spread(self, table: TableInfo, options: TableOptions) -> None:
        """Of a table that may have rows: do they lie where readers of the lake look for them? Raises `InvalidTable`."""
        assert options.format is not None
        capabilities = self._board.lakes(options.format).capabilities
        check_bucket_function(options.format, capabilities, table.path, table.descriptor)

    def _catch_up_schema(self, catalog: LakeCatalog, table: TableInfo) -> None:
        """Columns that were added while the lake was off; adding one that is there already changes nothing."""
        added = [c for c in table.schema.columns if c.type.nullable and c.name not in table.descriptor.primary_key]
        if table.schema.schema_id > 1:
            catalog.add_columns(table, added)

    def reconcile_schema(self, path: TablePath, *, dry_run: bool = False) -> SchemaReconciled:
        """After others changed the lake table's columns or partitioning. A table that stopped because of it goes on.
        Raises `InvalidAlter` for what cannot go back."""
        with self._lock:
            table = self._hot.load_table(path)
            options = self._options_of(table)
            if not options.enabled:
                raise InvalidRequest(what=f"reconcile-schema of {path}", reason="the lake is not enabled for it")
            changes = self._catalog(options).reconcile_schema(table, dry_run=dry_run)
        if changes and not dry_run and self._board.find(path).state in (TableState.FAILED, TableState.QUARANTINED):
            self._coordinator.resume(path)
        return SchemaReconciled(path=path, changes=changes, dry_run=dry_run)

    def restore_lake(self, path: TablePath, *, anew: bool = False) -> LakeRestored:
        """After somebody dropped the lake table: it comes back from the files that are left; `anew`: where none are,
        an empty one is made, and a resync writes what the hot store still has. Raises `InvalidRequest`."""
        with self._lock:
            table = self._hot.load_table(path)
            options, what = self._options_of(table), f"restore-lake of {path}"
            if not options.enabled:
                raise InvalidRequest(what=what, reason="the lake is not enabled for it")
            catalog = self._catalog(options)
            if catalog.exists(path):
                raise InvalidRequest(what=what, reason="its lake table is in the catalog, there is nothing to restore")
            self._check_spread(table, options)
            source = catalog.restore(table)
            if source is None and not anew:
                reason = "no files of it are left where the catalog kept them; `--anew` makes an empty lake table, and "
                raise InvalidRequest(what=what, reason=f"{reason}a resync writes what the hot store still has")
            if source is None:
                catalog.create(table)
        if source is None:
            self._coordinator.resync(path, ResyncChoice.RESYNC)
        elif self._board.find(path).state in (TableState.FAILED, TableState.QUARANTINED):
            self._coordinator.resume(path)
        return LakeRestored(path=path, source=source)

    # ---- drop ----
    def drop(self, path: TablePath) -> None:
        """Rounds stop first, then the hot side goes. The lake table stays as it is. Raises `TableNotFound`."""
        with self._lock:
            self._hot.load_table(path)
            self._coordinator.dropped(path)
            self._hot.drop_table(path)


def _mutable(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    return {k: v for k, v in changes.items() if k != keys.TABLE_DATALAKE_ENABLED.key}
