# SPDX-License-Identifier: Apache-2.0
"""Which sides a table has by its properties and the server's configuration, and whether their lakes can hold it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from lakeward.bucketing import check_bucket_keys, choose_function
from lakeward.config import options as keys
from lakeward.config.tables import DEFAULT_LAKE, check_given, check_properties, lakes_of, sides_named
from lakeward.coordinator.databases import Databases
from lakeward.coordinator.options import SideOptions, Sides, read_sides, sides_of
from lakeward.coordinator.state.board import Board
from lakeward.errors import InvalidRequest, InvalidTable, LakeForeign, LakeTableGone, LakeUnavailable, SideNotFound
from lakeward.model import (
    BucketFunction,
    Content,
    SideName,
    TableDescriptor,
    TableInfo,
    TablePath,
    changelog_side,
    fault_point,
    new_table_id,
    side_table,
)
from lakeward.spi import (
    LakeCatalog,
    SupportsReaders,
    SupportsRewrite,
    check_bucket_function,
    check_column_changes,
    check_table,
    lake_named,
)


class TableSides:
    """Nothing is made or changed here."""

    def __init__(self, board: Board, databases: Databases) -> None:
        self._board, self._databases = board, databases

    def lakes_of_new(self, database: str, properties: Mapping[str, str]) -> list[str]:
        """Where a new table with these properties would have sides."""
        return [side.lake for side in sides_named(self.with_lakes(database, properties))]

    def complete(
        self,
        path: TablePath,
        descriptor: TableDescriptor,
        function: BucketFunction | None = None,
        *,
        adopt: bool = False,
    ) -> tuple[TableDescriptor, Sides]:
        """The descriptor as it is recorded: checked, with the lakes or the format that it has at birth, and the bucket
        function that it keeps for life: the one that suits, unless one is given. `adopt`: as it was before."""
        properties = self.with_lakes(path.database, descriptor.properties)
        check_given(str(path), descriptor.properties)
        self._check_format(path, properties)
        config = check_properties(str(path), properties, descriptor, self._board.options.config)
        sides = self.read(path, properties)
        if readers := () if adopt else config.get(keys.TABLE_DATALAKE_READERS):
            properties[keys.TABLE_DATALAKE_READERS.key] = ", ".join(readers)
            properties |= self._for_readers(path, replace(descriptor, properties=properties), sides)
        first = next(iter(sides.values()))
        if first.format is not None and not lakes_of(properties):
            properties.setdefault(keys.TABLE_DATALAKE_FORMAT.key, first.format)
        function = function or choose_function(self.bucket_function(sides), descriptor)
        completed = replace(descriptor, properties=properties, bucket_function=function)
        check_bucket_keys(completed)
        for name, options in sides.items():
            self.check_fits(path, completed, name, options)
        for options in list(sides.values())[1:]:
            self.check_spread(path, completed, options)
        if not adopt:
            self.check_given(path, properties, descriptor.properties, sides)
        return completed, sides

    def _for_readers(self, path: TablePath, descriptor: TableDescriptor, sides: Sides) -> Mapping[str, str]:
        """Lake properties that its readers need. Raises `InvalidTable`."""
        catalogs = [self.catalog(o) for n, o in sides.items() if o.format is not None and n.content is Content.STATE]
        for catalog in catalogs:
            if isinstance(catalog, SupportsReaders):
                return catalog.properties_for_readers(path, descriptor)
        field = keys.TABLE_DATALAKE_READERS.key
        reason = "which engines read a table is known for Iceberg lakes alone, and it has none; leave it out"
        raise InvalidTable(table=str(path), field=field, value=descriptor.properties[field], reason=reason)

    def with_lakes(self, database: str, properties: Mapping[str, str]) -> dict[str, str]:
        """A new table keeps as its own what its database, or else the server's configuration, says of lakes now."""
        options, own = self._board.options, self._databases.find_lake(database)
        names, wanted = options.config.get(keys.TABLE_DATALAKE_LAKES), properties.get(keys.TABLE_DATALAKE_FORMAT.key)
        if own is not None and wanted is None:
            names = (own,)
        first = next(iter(options.configured), DEFAULT_LAKE)
        if not names and first != DEFAULT_LAKE:
            names = (first,) if wanted is None else self._only(own or first, wanted)
        if not lakes_of(properties):  # an empty list is none
            properties = {key: value for key, value in properties.items() if key != keys.TABLE_DATALAKE_LAKES.key}
        clean = not options.config.get(keys.TABLE_DATALAKE_SYSTEM_COLUMNS)
        return {
            **({keys.TABLE_DATALAKE_LAKES.key: ", ".join(names)} if names else {}),
            **({keys.TABLE_DATALAKE_SYSTEM_COLUMNS.key: "false"} if clean else {}),
            **properties,
        }

    def _only(self, preferred: str, format_name: str) -> tuple[str, ...]:
        """The lake of a format: the preferred one, or the only one."""
        fitting = [name for name, lake in self._board.options.configured.items() if lake.format == format_name]
        return (preferred,) if preferred in fitting else tuple(fitting) if len(fitting) == 1 else ()

    def _check_format(self, path: TablePath, properties: Mapping[str, str]) -> None:
        """A table of a format that says no lake would have none, without a word. Raises `InvalidTable`."""
        known, key = self._board.options.configured, keys.TABLE_DATALAKE_FORMAT.key
        if key in properties and not lakes_of(properties) and known and DEFAULT_LAKE not in known:
            lakes = ", ".join(f"{name} ({lake.format})" for name, lake in known.items())
            reason = f"name its lake in {keys.TABLE_DATALAKE_LAKES.key}; this server has {lakes}"
            raise InvalidTable(table=str(path), field=key, value=properties[key], reason=reason)

    def read(self, path: TablePath, properties: Mapping[str, str]) -> Sides:
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

    def bucket_function(self, sides: Sides) -> BucketFunction:
        """The one that a side's readers need, else that of the first."""
        lakes = [self._board.lakes(o.lake).capabilities for o in sides.values() if o.format is not None]
        needed = [c.bucket_function for c in lakes if c.bucket_function_needed]
        return next(iter([*needed, *(c.bucket_function for c in lakes)]), BucketFunction.FLUSS)

    def check_fits(self, path: TablePath, descriptor: TableDescriptor, name: SideName, options: SideOptions) -> None:
        """Can the table exist in its lake format? Raises `InvalidTable`, `UnsupportedType`, `UnsupportedBucketKey`."""
        if options.format is not None:
            of = side_table(TableInfo(path=path, table_id=new_table_id(), descriptor=descriptor), name)
            lake = self._board.lakes(options.lake)
            can_rewrite = isinstance(lake, SupportsRewrite)
            check_table(options.format, lake.capabilities, of.path, of.descriptor, can_rewrite=can_rewrite)
            self.catalog(options).check_descriptor(of.path, of.descriptor)

    def check_given(self, path: TablePath, properties: Mapping[str, str], said: Collection[str], sides: Sides) -> None:
        """Checks the lake properties that a call sets, for a table that will have these and had those. Properties of a
        format in which it has no lake are kept: a table may be created again in another format, or get such a lake.
        Raises `InvalidTable`."""
        for options in sides.values():  # one of which nothing is said need not be there
            if options.format is not None and any(k.startswith(f"{options.format}.") for k in said):
                self.catalog(options).check_given(path, properties, said)

    def check_alter(
        self, table: TableInfo, after: TableInfo, lakes: Sides, properties: Mapping[str, str | None]
    ) -> None:
        """Would each of these lakes take the columns of `after` and these properties? Raises what one of them would."""
        evolves = table.schema.schema_id != after.schema.schema_id
        for name, options in lakes.items() if evolves or properties else ():
            capabilities, side = self._board.lakes(options.lake).capabilities, side_table(table, name)
            with lake_named(options.lake):
                if evolves:
                    check_column_changes(str(options.format), capabilities, table, after)
                    self.catalog(options).check_evolve(side, side_table(after, name))
                self.catalog(options).check_alter(side, (), properties)

    def evolve_notes(self, table: TableInfo, after: TableInfo, lakes: Sides) -> dict[SideName, tuple[str, ...]]:
        """Features that readers of each lake table must support after its columns changed."""
        return {
            name: self.catalog(options).evolve_notes(side_table(table, name), side_table(after, name))
            for name, options in lakes.items()
        }

    def finish_evolve(self, table: TableInfo, lakes: Sides) -> None:
        """After hot store and lakes have the columns of `table`. A lake that does not answer now is finished by the
        next change."""
        fault_point("alter.before-finish", table=str(table.path))
        for name, options in lakes.items():
            with suppress(LakeUnavailable), lake_named(options.lake):
                self.catalog(options).finish_evolve(side_table(table, name))

    def check_enable(self, table: TableInfo, name: SideName, options: SideOptions) -> None:
        """Can a table that has rows get this lake? One that this very table filled before is fine, anybody else's is
        not. Raises what `create` of its catalog would, `LakeForeign` and as `check_fits` and `check_spread`."""
        self.check_fits(table.path, table.descriptor, name, options)
        self.check_spread(table.path, table.descriptor, options)
        table, catalog = side_table(table, name), self.catalog(options)
        with lake_named(options.lake):
            owner = catalog.table_id(table.path) if catalog.exists(table.path) else None
            if owner is not None and owner != table.table_id:
                raise LakeForeign(table=str(table.path), found=owner, expected=table.table_id)
            if owner is not None and table.schema.schema_id > 1:
                catalog.check_evolve(table, table)
            else:
                catalog.check_create(table, adopt=owner is not None)

    def check_apart(self, table: TableInfo, lakes: Sides) -> None:
        """Two lakes may be one place under two names. Some formats tell before a table is made, others afterwards.
        Raises `InvalidTable`."""
        places: dict[tuple[str | None, str, TablePath], SideName] = {}
        for name, options in lakes.items() if len(lakes) > 1 else ():
            path = side_table(table, name).path
            place = None
            with suppress(LakeTableGone), lake_named(options.lake):
                place = self.catalog(options).location(path)
            other = name if place is None else places.setdefault((options.format, place, path), name)
            if other != name:
                reason = (
                    f"lakes {other} and {name} keep it in one place ({place}): two sides would write one lake table"
                )
                raise InvalidTable(
                    table=str(table.path), field=keys.TABLE_DATALAKE_LAKES.key, value=f"{other}, {name}", reason=reason
                )

    def catalog(self, options: SideOptions) -> LakeCatalog:
        return self._board.lakes(options.lake).catalog()

    def of(self, table: TableInfo) -> Sides:
        return sides_of(table, self._board.options)

    def check_spread(self, path: TablePath, descriptor: TableDescriptor, options: SideOptions) -> None:
        """Do its rows lie where readers of the lake look for them? Raises `InvalidTable`."""
        if options.format is not None:
            capabilities = self._board.lakes(options.lake).capabilities
            check_bucket_function(options.format, capabilities, path, descriptor)

    def options_of(self, table: TableInfo, name: SideName | None, what: str) -> SideOptions:
        """Options of the named side, or the first. Raises `SideNotFound`, `InvalidRequest` if it is off."""
        sides = self.of(table)
        if name is not None and name not in sides:
            raise SideNotFound(table=str(table.path), side=str(name), sides=", ".join(map(str, sides)))
        options = next(iter(sides.values())) if name is None else sides[name]
        if not options.enabled:
            raise InvalidRequest(what=what, reason="the lake is not enabled for it")
        return options


def enabled(sides: Sides) -> Sides:
    return {name: options for name, options in sides.items() if options.enabled}
