# SPDX-License-Identifier: Apache-2.0
"""DDL over both sides: the lake first, then the hot store, then the coordinator's record. Dropping never touches the
lake.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from lakeward.bucketing import check_bucket_keys, choose_function
from lakeward.config import options as keys
from lakeward.config.tables import DEFAULT_LAKE, check_alter, check_properties, lakes_of, sides_named
from lakeward.coordinator.coordinator import Coordinator
from lakeward.coordinator.options import SideOptions, Sides, read_sides, sides_of
from lakeward.errors import (
    InvalidAlter,
    InvalidRequest,
    InvalidTable,
    LakeForeign,
    LakeTableGone,
    SideNotFound,
    TableAlreadyExists,
    TableNotFound,
)
from lakeward.model.ids import TableId, new_table_id
from lakeward.model.newtable import check_new_columns, check_new_table, warn_of_columns
from lakeward.model.schema import Column
from lakeward.model.side import RETENTION_PROPERTY, Content, SideName, changelog_side
from lakeward.model.sidetable import side_table
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
            descriptor, sides = self._complete(request.path, request.descriptor)
            table = TableInfo(
                path=request.path,
                table_id=new_table_id(),
                descriptor=descriptor,
                created_at_ms=self._board.clock.now_ms(),
            )
            self._hot.check_table(table)
            lakes = _enabled(sides)
            if lakes:
                table = self._create_in_lakes(table, lakes, request.adopt)
            elif request.adopt:
                raise InvalidRequest(what=f"adopting {request.path}", reason="the lake is not enabled for this table")
            self._hot.create_table(table)
            self._coordinator.register(table, new=not request.adopt)
        if request.adopt:
            self._coordinator.read_lake(table.path)
        warnings = warn_of_columns(descriptor.schema.columns) if lakes else ()
        return TableAnswer(table=table, created=True, warnings=(*self._coordinator.warnings(table.path), *warnings))

    def _find(self, path: TablePath) -> TableInfo | None:
        try:
            return self._hot.load_table(path)
        except TableNotFound:
            return None

    def _complete(self, path: TablePath, descriptor: TableDescriptor) -> tuple[TableDescriptor, Sides]:
        """The descriptor as it is recorded: checked, with the lakes or the format that it has at birth, and the bucket
        function that it keeps for life."""
        properties = self._with_lakes(path.database, descriptor.properties)
        check_properties(str(path), properties, descriptor.partition_keys, self._board.options.config)
        sides = self._read(path, properties)
        first = next(iter(sides.values()))
        if first.format is not None and not lakes_of(properties):
            properties.setdefault(keys.TABLE_DATALAKE_FORMAT.key, first.format)
        function = choose_function(self._bucket_function(sides), descriptor)
        completed = replace(descriptor, properties=properties, bucket_function=function)
        check_bucket_keys(completed)
        for name, options in sides.items():
            self._check_fits(path, completed, name, options)
        for options in list(sides.values())[1:]:
            self._check_spread(path, completed, options)
        return completed, sides

    def lakes_of_new(self, database: str, properties: Mapping[str, str]) -> list[str]:
        """Where a new table with these properties would have sides."""
        return [side.lake for side in sides_named(self._with_lakes(database, properties))]

    def _with_lakes(self, database: str, properties: Mapping[str, str]) -> dict[str, str]:
        """A new table keeps as its own what its database, or else the server's configuration, says of lakes now."""
        options, own = self._board.options, self._coordinator.databases.find_lake(database)
        names = options.config.get(keys.TABLE_DATALAKE_LAKES)
        if own is not None and keys.TABLE_DATALAKE_FORMAT.key not in properties:
            names = (own,)
        first = next(iter(options.configured), DEFAULT_LAKE)
        if not names and first != DEFAULT_LAKE and keys.TABLE_DATALAKE_FORMAT.key not in properties:
            names = (first,)
        clean = not options.config.get(keys.TABLE_DATALAKE_SYSTEM_COLUMNS)
        return {
            **({keys.TABLE_DATALAKE_LAKES.key: ", ".join(names)} if names else {}),
            **({keys.TABLE_DATALAKE_SYSTEM_COLUMNS.key: "false"} if clean else {}),
            **properties,
        }

    def _read(self, path: TablePath, properties: Mapping[str, str]) -> Sides:
        """Raises `InvalidTable` for a lake that is not configured, or has another format than the table wants."""
        known, key = self._board.options.configured, keys.TABLE_DATALAKE_LAKES.key
        wanted = properties.get(keys.TABLE_DATALAKE_FORMAT.key)
        changes = changelog_side(properties)
        named = [(key, n) for n in lakes_of(properties)]
        for field, name in [*named, *([(keys.TABLE_DATALAKE_CHANGELOG.key, changes.lake)] if changes else [])]:
            if name not in known:
                reason = f"no such lake is configured; there are: {', '.join(known) or 'none'}"
                raise InvalidTable(table=str(path), field=field, value=name, reason=reason)
        first = next(iter(lakes_of(properties)), DEFAULT_LAKE)
        if wanted is not None and first != DEFAULT_LAKE and known[first].format != wanted:
            reason = f"its lake {first} has the format {known[first].format}"
            raise InvalidTable(table=str(path), field=keys.TABLE_DATALAKE_FORMAT.key, value=wanted, reason=reason)
        return read_sides(properties, self._board.options)

    def _bucket_function(self, sides: Sides) -> BucketFunction:
        """The one that a side's readers need, else that of the first."""
        lakes = [self._board.lakes(o.lake).capabilities for o in sides.values() if o.format is not None]
        needed = [c.bucket_function for c in lakes if c.bucket_function_needed]
        return next(iter([*needed, *(c.bucket_function for c in lakes)]), BucketFunction.FLUSS)

    def _check_fits(self, path: TablePath, descriptor: TableDescriptor, name: SideName, options: SideOptions) -> None:
        """Can the table exist in its lake format? Raises `InvalidTable`, `UnsupportedType`, `UnsupportedBucketKey`."""
        if options.format is not None:
            of = side_table(TableInfo(path=path, table_id=new_table_id(), descriptor=descriptor), name)
            check_table(options.format, self._board.lakes(options.lake).capabilities, of.path, of.descriptor)
            self._catalog(options).check_descriptor(of.path, of.descriptor)

    def _create_in_lakes(self, table: TableInfo, lakes: Sides, adopt: bool) -> TableInfo:
        catalogs = {name: self._catalog(options) for name, options in lakes.items()}
        if adopt:
            table = replace(table, table_id=self._adopted_id(catalogs, table))
        for name, catalog in catalogs.items():
            catalog.create(side_table(table, name), adopt=adopt)
        self._check_apart(table, lakes)
        return table

    def _adopted_id(self, catalogs: Mapping[SideName, LakeCatalog], table: TableInfo) -> TableId:
        """The id that the lakes' snapshots carry; lake tables nobody tiered to get the new one."""
        places = [(c, side_table(table, name).path) for name, c in catalogs.items()]
        asked = [(c, path) for c, path in places if len(catalogs) == 1 or c.exists(path)]
        owners = [owner for catalog, path in asked if (owner := catalog.table_id(path)) is not None]
        for owner in owners[1:]:
            if owner != owners[0]:
                raise LakeForeign(table=str(table.path), found=owner, expected=owners[0])
        return owners[0] if owners else table.table_id

    def _check_apart(self, table: TableInfo, lakes: Sides) -> None:
        """Two lakes may be one place under two names. Raises `InvalidTable`."""
        places: dict[tuple[str | None, str, TablePath], SideName] = {}
        for name, options in lakes.items() if len(lakes) > 1 else ():
            path = side_table(table, name).path
            place = self._catalog(options).location(path)
            other = name if place is None else places.setdefault((options.format, place, path), name)
            if other != name:
                reason = (
                    f"lakes {other} and {name} keep it in one place ({place}): two sides would write one lake table"
                )
                raise InvalidTable(
                    table=str(table.path), field=keys.TABLE_DATALAKE_LAKES.key, value=f"{other}, {name}", reason=reason
                )

    def _catalog(self, options: SideOptions) -> LakeCatalog:
        return self._board.lakes(options.lake).catalog()

    def adopt(self, path: TablePath, request: AdoptTable) -> TableAnswer:
        """Takes over a lake table that carries snapshots of ours: its table id and its offsets. Where the hot side is
        gone the descriptor makes it anew; where it stands, it must be the very table that filled the lake."""
        if request.foreign:
            return self._adopt_foreign(path, request)
        table = self._find(path)
        if table is None:
            if request.descriptor is None:
                raise InvalidRequest(what=f"adopting {path}", reason="the hot side does not exist: send its descriptor")
            return self.create(CreateTable(path=path, descriptor=request.descriptor, adopt=True))
        sides = self._sides_of(table)
        if all(options.format is None for options in sides.values()):
            raise InvalidRequest(what=f"adopting {path}", reason="the server has no datalake.format")
        if not _enabled(sides):
            return self.alter(path, AlterTable(properties={keys.TABLE_DATALAKE_ENABLED.key: "true"}))
        for name, options in _enabled(sides).items():
            self._enable_lake(table, name, options)
        self._coordinator.read_lake(path)
        return TableAnswer(table=table, created=False, warnings=self._coordinator.warnings(path))

    def _adopt_foreign(self, path: TablePath, request: AdoptTable) -> TableAnswer:
        """One that others made, with what is in it. After a crash in between the same call goes on. Raises
        `TableAlreadyExists`, `InvalidTable`, `UnsupportedType`, `LakeForeign`."""
        what = f"adopting {path}"
        if self._find(path) is not None:
            raise TableAlreadyExists(table=str(path))
        if request.primary_key:
            reason = "its keys would have to be loaded into the hot store; adopt it without --key, as a log table"
            raise InvalidRequest(what=what, reason=reason)
        properties = {
            keys.TABLE_DATALAKE_SYSTEM_COLUMNS.key: "false",
            **({} if request.lake is None else {keys.TABLE_DATALAKE_LAKES.key: request.lake}),
        }
        sides = _enabled(self._read(path, self._with_lakes(path.database, properties)))
        if len(sides) != 1:
            reason = f"say in which lake it is, with --lake; new tables get {', '.join(map(str, sides)) or 'none'}"
            raise InvalidRequest(what=what, reason=reason)
        ((side, options),) = sides.items()
        catalog = self._catalog(options)
        descriptor = replace(catalog.describe_foreign(path, request.bucket_count), properties=properties)
        check_new_table(str(path), descriptor)
        table = TableInfo(path=path, table_id=new_table_id(), descriptor=self._complete(path, descriptor)[0])
        self._hot.check_table(table)
        owner = catalog.table_id(path)
        table = table if owner is None else replace(table, table_id=owner)
        storage = self._board.lakes(options.lake)
        if owner is not None and storage.open_reader(table).adopted is None:
            raise InvalidRequest(what=what, reason="it has snapshots of ours; adopt it without --foreign")
        catalog.create(side_table(table, side), adopt=True)
        storage.open_maintenance(side_table(table, side)).take_over({})
        return self.create(CreateTable(path=path, descriptor=descriptor, adopt=True))

    # ---- alter ----
    def alter(self, path: TablePath, change: AlterTable) -> TableAnswer:
        """Columns and properties go to the lake first; then the lake is switched on or off if that was asked for."""
        with self._lock:
            before = self._hot.load_table(path)
            check_alter(str(path), change.properties)
            after = self._altered(before, change)
            self._check_last_side(before, change)
            was, wanted = self._sides_of(before), self._read(path, after.descriptor.properties)
            self._check_there(path, change, wanted)
            added = {n: o for n, o in _enabled(wanted).items() if n not in _enabled(was)}
            kept = {n: o for n, o in _enabled(was).items() if n in wanted}
            self._check_adopted(before, was, [n for n in added if n not in was])
            for name, options in kept.items() if RETENTION_PROPERTY in change.properties else ():
                self._check_fits(path, after.descriptor, name, options)
            self._alter_lakes(before, kept, change)
            for name, options in added.items():
                self._enable_lake(after, name, options)
            self._check_apart(after, _enabled(wanted) if added else {})
            self._hot.alter_table(after)
            self._coordinator.altered(after)
        for name in added:
            self._coordinator.read_lake(path, name)
        warnings = warn_of_columns(Column.from_json(c) for c in change.add_columns) if _enabled(wanted) else ()
        late = self._warn_of_history(after, added, was)
        return TableAnswer(table=after, created=False, warnings=(*self._coordinator.warnings(path), *warnings, *late))

    def _check_last_side(self, table: TableInfo, change: AlterTable) -> None:
        key = keys.TABLE_DATALAKE_LAKES.key
        if key in change.properties and not (change.properties[key] or "").strip(" ,"):
            reason = f"a table keeps one side at least; {keys.TABLE_DATALAKE_ENABLED.key} = false switches them all off"
            raise InvalidAlter(table=str(table.path), change=f"property {key}", reason=reason)

    def _check_there(self, path: TablePath, change: AlterTable, sides: Sides) -> None:
        asked = (change.properties.get(keys.TABLE_DATALAKE_ENABLED.key) or "").strip().lower()
        if asked == "true" and not _enabled(sides):
            raise InvalidAlter(
                table=str(path), change=keys.TABLE_DATALAKE_ENABLED.key, reason="the server has no datalake.format"
            )

    def _check_adopted(self, table: TableInfo, sides: Sides, added: Sequence[SideName]) -> None:
        """Rows that others wrote before a table was ours are in no log: another lake would never have them. A changelog
        begins late anyway. Raises `InvalidAlter`."""
        added = [n for n in added if n.content is Content.STATE]
        if not added or not table.descriptor.is_clean:
            return
        for name, options in sides.items():
            if options.format is None or name.content is not Content.STATE:
                continue
            with suppress(LakeTableGone):
                if self._board.lakes(options.lake).open_reader(side_table(table, name)).adopted is not None:
                    reason = f"rows from before it was adopted are in lake {name} alone, and in no log; copy the table"
                    raise InvalidAlter(table=str(table.path), change=f"lake {added[0]}", reason=reason)

    def _warn_of_history(self, table: TableInfo, added: Sides, was: Sides) -> list[str]:
        """A lake that comes late gets what the log still has; of a PK table that is every key."""
        late = [name for name in added if not side_table(table, name).is_pk]
        if not late or not _enabled(was) or not any(b.start for b in self._hot.bounds(table).values()):
            return []
        others = ", ".join(map(str, was))
        return [
            f"the changelog of {table.path} begins with what the log still has: earlier changes are in no lake"
            if name.content is Content.CHANGELOG and table.is_pk
            else f"lake {name} gets what the log still has: older rows of {table.path} are in {others} alone"
            for name in late
        ]

    def _sides_of(self, table: TableInfo) -> Sides:
        return sides_of(table, self._board.options)

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

    def _alter_lakes(self, table: TableInfo, lakes: Sides, change: AlterTable) -> None:
        """What each can do is asked of all first; each step is safe to repeat."""
        names = [str(c["name"]) for c in change.add_columns]
        for options in lakes.values():
            capabilities = self._board.lakes(options.lake).capabilities
            check_added_columns(str(options.format), capabilities, table.path, names)
        for name, options in lakes.items():
            of = side_table(table, name)
            if change.add_columns:
                self._catalog(options).add_columns(of, [Column.from_json(c) for c in change.add_columns])
            if properties := _mutable(change.properties):
                self._catalog(options).set_properties(of, properties)

    def _enable_lake(self, table: TableInfo, name: SideName, options: SideOptions) -> None:
        """A lake table that this very table filled before is taken again; anybody else's is refused."""
        self._check_fits(table.path, table.descriptor, name, options)
        self._check_spread(table.path, table.descriptor, options)
        table, catalog = side_table(table, name), self._catalog(options)
        owner = catalog.table_id(table.path) if catalog.exists(table.path) else None
        if owner is not None and owner != table.table_id:
            raise LakeForeign(table=str(table.path), found=owner, expected=table.table_id)
        if owner == table.table_id:
            self._catch_up_schema(catalog, table)
        catalog.create(table, adopt=owner == table.table_id)

    def _check_spread(self, path: TablePath, descriptor: TableDescriptor, options: SideOptions) -> None:
        """Do its rows lie where readers of the lake look for them? Raises `InvalidTable`."""
        if options.format is not None:
            capabilities = self._board.lakes(options.lake).capabilities
            check_bucket_function(options.format, capabilities, path, descriptor)

    def _side_options(self, table: TableInfo, name: SideName | None, what: str) -> SideOptions:
        """Of the named side, or the first. Raises `SideNotFound`, `InvalidRequest` where it is off."""
        sides = self._sides_of(table)
        if name is not None and name not in sides:
            raise SideNotFound(table=str(table.path), side=str(name), sides=", ".join(map(str, sides)))
        options = next(iter(sides.values())) if name is None else sides[name]
        if not options.enabled:
            raise InvalidRequest(what=what, reason="the lake is not enabled for it")
        return options

    def _catch_up_schema(self, catalog: LakeCatalog, table: TableInfo) -> None:
        """Columns that were added while the lake was off; adding one that is there already changes nothing."""
        added = [c for c in table.schema.columns if c.type.nullable and c.name not in table.descriptor.primary_key]
        if table.schema.schema_id > 1:
            catalog.add_columns(table, added)

    def reconcile_schema(
        self, path: TablePath, side: SideName | None = None, *, dry_run: bool = False
    ) -> SchemaReconciled:
        """After others changed the lake table's columns or partitioning. A table that stopped because of it goes on.
        Raises `InvalidAlter` for what cannot go back."""
        with self._lock:
            table = self._hot.load_table(path)
            options = self._side_options(table, side, f"reconcile-schema of {path}")
            changes = self._catalog(options).reconcile_schema(side_table(table, side), dry_run=dry_run)
        if changes and not dry_run:
            self._resume_stopped(path, side)
        return SchemaReconciled(path=path, changes=changes, dry_run=dry_run)

    def _resume_stopped(self, path: TablePath, name: SideName | None) -> None:
        side = self._board.find(path, name)
        if side.state in (TableState.FAILED, TableState.QUARANTINED):
            self._coordinator.resume(path, side.name)

    def restore_lake(self, path: TablePath, side: SideName | None = None, *, anew: bool = False) -> LakeRestored:
        """After somebody dropped the lake table: it comes back from the files that are left; `anew`: where none are,
        an empty one is made, and a resync writes what the hot store still has. Raises `InvalidRequest`."""
        with self._lock:
            table = self._hot.load_table(path)
            what = f"restore-lake of {path}"
            options = self._side_options(table, side, what)
            catalog = self._catalog(options)
            table = side_table(table, side)
            if catalog.exists(table.path):
                raise InvalidRequest(what=what, reason="its lake table is in the catalog, there is nothing to restore")
            self._check_spread(path, table.descriptor, options)
            source = catalog.restore(table)
            if source is None and not anew:
                reason = "no files of it are left where the catalog kept them; `--anew` makes an empty lake table, and "
                raise InvalidRequest(what=what, reason=f"{reason}a resync writes what the hot store still has")
            if source is None:
                catalog.create(table)
        if source is None:
            self._coordinator.resync(path, ResyncChoice.RESYNC, side)
        else:
            self._resume_stopped(path, side)
        return LakeRestored(path=path, source=source)

    # ---- drop ----
    def drop(self, path: TablePath) -> None:
        """Rounds stop first, then the hot side goes. The lake table stays as it is. Raises `TableNotFound`."""
        with self._lock:
            self._hot.load_table(path)
            self._coordinator.dropped(path)
            self._hot.drop_table(path)


def _enabled(sides: Sides) -> Sides:
    return {name: options for name, options in sides.items() if options.enabled}


def _mutable(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """Properties that lake tables carry too; which lakes there are is none of them."""
    about = tuple(
        o.key for o in (keys.TABLE_DATALAKE_ENABLED, keys.TABLE_DATALAKE_LAKES, keys.TABLE_DATALAKE_CHANGELOG)
    )
    return {k: v for k, v in changes.items() if not k.startswith(about)}
