# SPDX-License-Identifier: Apache-2.0
"""DDL over both sides: the lake first, then the hot store, then the coordinator's record. Dropping never touches the
lake.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from lakeward.config import options as keys
from lakeward.config.tables import check_alter, check_given, check_known, check_properties
from lakeward.coordinator.coordinator import Coordinator
from lakeward.coordinator.lake.adoption import Adoptions
from lakeward.coordinator.lake.alterplan import plan_alter
from lakeward.coordinator.lake.ownlaketables import OwnLakeTables
from lakeward.coordinator.lake.tablesides import TableSides, enabled
from lakeward.coordinator.options import SideOptions, Sides
from lakeward.errors import (
    InvalidAlter,
    InvalidRequest,
    LakeForeign,
    LakeMetadataGone,
    LakeMismatch,
    LakeTableGone,
    TableAlreadyExists,
    TableNotFound,
)
from lakeward.model import (
    RETENTION_PROPERTY,
    Bucket,
    BucketFunction,
    ColumnChanges,
    Content,
    SideName,
    TableId,
    TableInfo,
    TablePath,
    TableState,
    change_columns,
    check_new_table,
    fault_point,
    new_table_id,
    of_table,
    side_table,
    warn_of_columns,
)
from lakeward.protocol.operate import AdoptionStatus, AdoptTable, LakeRestored, ResyncChoice, SchemaReconciled
from lakeward.protocol.tables import AlterTable, CreateTable, TableAnswer
from lakeward.spi import (
    AdoptedRows,
    HotLoad,
    LakeCatalog,
    SupportsForeignTables,
    SupportsRestore,
    SupportsTakeOver,
    lake_named,
)


class Federation:
    """One DDL at a time: the calls are rare, and two creations of one name must not cross."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._board = coordinator.board
        self._hot = coordinator.board.hot
        self._lock = threading.Lock()
        self.sides = TableSides(coordinator.board, coordinator.databases)
        self._own = OwnLakeTables(coordinator.board, self.sides)
        self.adoptions = Adoptions(coordinator.board, self._publish)

    # ---- create ----
    def create(self, request: CreateTable) -> TableAnswer:
        """Raises `TableAlreadyExists`, `LakeMismatch`, `LakeNotEmpty`, `InvalidInput` of many kinds, `LakeUnavailable`.

        A crash between the lake and the hot store leaves an empty lake table, which the next try takes."""
        with self._lock:
            existing = self._find(request.path)
            if existing is not None:
                if request.if_not_exists:
                    return TableAnswer(
                        table=existing, created=False, warnings=self._coordinator.views.warnings_of(existing.path)
                    )
                raise TableAlreadyExists(table=str(request.path))
            if not request.adopt:
                check_new_table(str(request.path), request.descriptor)
            descriptor, sides = self.sides.complete(request.path, request.descriptor, adopt=request.adopt)
            table = TableInfo(
                path=request.path,
                table_id=new_table_id(),
                descriptor=descriptor,
                created_at_ms=self._board.clock.now_ms(),
            )
            self._hot.check_table(table)
            lakes = enabled(sides)
            if lakes:
                table = self._create_in_lakes(table, lakes, request.adopt)
            elif request.adopt:
                raise InvalidRequest(what=f"adopting {request.path}", reason="the lake is not enabled for this table")
            self._hot.create_table(table)
            self._coordinator.registry.register(table, new=not request.adopt)
        if request.adopt:
            self._coordinator.read_lake(table.path)
        warnings = warn_of_columns(descriptor.schema.columns) if lakes else ()
        return TableAnswer(
            table=table, created=True, warnings=(*self._coordinator.views.warnings_of(table.path), *warnings)
        )

    def _find(self, path: TablePath) -> TableInfo | None:
        try:
            return self._hot.load_table(path)
        except TableNotFound:
            return None

    def _create_in_lakes(self, table: TableInfo, lakes: Sides, adopt: bool) -> TableInfo:
        catalogs = {name: self.sides.catalog(options) for name, options in lakes.items()}
        if adopt:
            table = replace(table, table_id=self._adopted_id(catalogs, table))
        of = {name: side_table(table, name) for name in catalogs}
        self.sides.check_apart(table, lakes)
        for name, catalog in catalogs.items() if not adopt else ():
            with lake_named(lakes[name].lake):
                self._own.make_room(catalog, of[name])
        for name, catalog in catalogs.items() if len(catalogs) > 1 else ():
            # A lake that is down, or has another table there, is found out before the first one has ours.
            with lake_named(lakes[name].lake):
                catalog.check_create(of[name], adopt=adopt)
        for name, catalog in catalogs.items():
            with lake_named(lakes[name].lake):
                catalog.create(of[name], adopt=adopt)
        self.sides.check_apart(table, lakes)
        return table

    def _adopted_id(self, catalogs: Mapping[SideName, LakeCatalog], table: TableInfo) -> TableId:
        """The id that the lakes' snapshots carry; lake tables without one get the new id."""
        places = [(c, side_table(table, name).path) for name, c in catalogs.items()]
        asked = [(c, path) for c, path in places if len(catalogs) == 1 or c.exists(path)]
        owners = [owner for catalog, path in asked if (owner := catalog.table_id(path)) is not None]
        for owner in owners[1:]:
            if owner != owners[0]:
                raise LakeForeign(table=str(table.path), found=owner, expected=owners[0])
        return owners[0] if owners else table.table_id

    def adopt(self, path: TablePath, request: AdoptTable) -> TableAnswer:
        """Adopts a lake table that carries Lakeward's snapshots, with its table id and offsets. If the table is not in
        the hot store it is created from the descriptor; if it is, it must be the table that filled the lake. With
        `foreign`, adopts a table of another engine as a log table."""
        if request.foreign:
            return self._adopt_foreign(path, request)
        table = self._find(path)
        if table is None:
            if request.descriptor is None:
                reason = "there is no such table here. A lake table that others made: --foreign. One of ours: make the "
                reason += "table as it was, with adopt=True of client.create_table"
                raise InvalidRequest(what=f"adopting {path}", reason=reason)
            return self.create(CreateTable(path=path, descriptor=request.descriptor, adopt=True))
        sides = self.sides.of(table)
        if all(options.format is None for options in sides.values()):
            raise InvalidRequest(what=f"adopting {path}", reason="the server has no datalake.format")
        if not enabled(sides):
            return self.alter(path, AlterTable(properties={keys.TABLE_DATALAKE_ENABLED.key: "true"}))
        for name, options in enabled(sides).items():
            self.sides.check_enable(table, name, options)
        for name, options in enabled(sides).items():
            self._enable_lake(table, name, options)
        self._coordinator.read_lake(path)
        return TableAnswer(table=table, created=False, warnings=self._coordinator.views.warnings_of(path))

    def _adopt_foreign(self, path: TablePath, request: AdoptTable) -> TableAnswer:
        """After a crash in between the same call goes on. Raises `TableAlreadyExists`, and as `_foreign_table`."""
        if request.primary_key:
            raise InvalidRequest(what=f"adopting {path}", reason="with a key its rows are loaded first: adopt_keyed")
        if self._find(path) is not None:
            raise TableAlreadyExists(table=str(path))
        table, options, warnings = self._foreign_table(path, request)
        self.sides.catalog(options).create(table, adopt=True)
        upkeep = self._board.lakes(options.lake).open_maintenance(table)
        assert isinstance(upkeep, SupportsTakeOver), f"{options.format} takes over nothing"
        upkeep.take_over({})
        made = self.create(CreateTable(path=path, descriptor=table.descriptor, adopt=True))
        return replace(made, warnings=(*made.warnings, *warnings))

    def adopt_keyed(self, path: TablePath, request: AdoptTable) -> AdoptionStatus:
        """One that others made, as a PK table: its rows are loaded after the answer, which says how far that is. The
        same call again joins it. Raises `TableAlreadyExists`, `TableLoading`, and as `_foreign_table`."""
        key, load = request.primary_key, self.adoptions.find(path)
        if load is not None and load.table.descriptor.primary_key == key:
            return self.adoptions.status(path)
        there = self._find(path)
        if there is not None:
            if there.descriptor.primary_key == key and self._is_adopted(there):
                return self.adoptions.status(path)
            raise TableAlreadyExists(table=str(path))
        table, options, warnings = self._foreign_table(path, request)
        return self.adoptions.begin(table, options.lake, warnings)

    def _foreign_table(self, path: TablePath, request: AdoptTable) -> tuple[TableInfo, SideOptions, tuple[str, ...]]:
        """The table as it will be, its lake, and the warnings to show. Raises `InvalidRequest`, `InvalidTable`,
        `UnsupportedType`, `LakeForeign`."""
        what = f"adopting {path}"
        properties = {
            keys.TABLE_DATALAKE_SYSTEM_COLUMNS.key: "false",
            **({} if request.lake is None else {keys.TABLE_DATALAKE_LAKES.key: request.lake}),
        }
        sides = enabled(self.sides.read(path, self.sides.with_lakes(path.database, properties)))
        if len(sides) != 1:
            reason = f"say in which lake it is, with --lake; new tables get {', '.join(map(str, sides)) or 'none'}"
            raise InvalidRequest(what=what, reason=reason)
        (options,) = sides.values()
        catalog = self.sides.catalog(options)
        if not isinstance(catalog, SupportsForeignTables):
            reason = "of this lake format no tables are taken over that others made; Iceberg's are"
            raise InvalidRequest(what=f"adopting {path}", reason=reason)
        try:
            with of_table(str(path)):
                foreign = catalog.describe_foreign(path, request.bucket_count, request.primary_key)
        except LakeTableGone as error:
            raise InvalidRequest(what=what, reason=f"the catalog of lake {options.lake} has no such table") from error
        descriptor = replace(foreign, properties=properties)
        check_new_table(str(path), descriptor)
        # It has no partition field for the bucket, as Iceberg's function would want.
        completed, _ = self.sides.complete(path, descriptor, BucketFunction.FLUSS if descriptor.is_pk else None)
        now_ms = self._board.clock.now_ms()
        table = TableInfo(path=path, table_id=new_table_id(), descriptor=completed, created_at_ms=now_ms)
        self._hot.check_table(table)
        owner = catalog.table_id(path)
        if owner is None:
            return table, options, catalog.warn_foreign(path)
        table = replace(table, table_id=owner)
        _check_again(what, self._board.lakes(options.lake).open_reader(table).adopted, request)
        return table, options, ()

    def _publish(self, load: HotLoad, ends: Mapping[Bucket, int]) -> None:
        with self._lock:
            self._hot.publish_load(load, ends)
            self._coordinator.registry.register(load.table, new=False)
        self._coordinator.read_lake(load.table.path)

    # ---- alter ----
    def alter(self, path: TablePath, change: AlterTable) -> TableAnswer:
        """Columns and properties go to the lake first; then the lake is switched on or off if that was asked for."""
        with self._lock:
            before = self._hot.load_table(path)
            check_alter(str(path), change.properties)
            check_given(str(path), change.properties)
            check_known(str(path), change.properties, before.descriptor.properties)
            after = self._altered(before, change)
            self._check_last_side(before, change)
            was, wanted = self.sides.of(before), self.sides.read(path, after.descriptor.properties)
            self._check_there(path, change, wanted)
            added = {n: o for n, o in enabled(wanted).items() if n not in enabled(was)}
            kept = {n: o for n, o in enabled(was).items() if n in wanted}
            self._check_adopted(before, was, [n for n in added if n not in was])
            for name, options in kept.items() if RETENTION_PROPERTY in change.properties else ():
                self.sides.check_fits(path, after.descriptor, name, options)
            self.sides.check_alter(before, after, kept, _mutable(change.properties))
            for name, options in added.items():
                self.sides.check_enable(after, name, options)
            self.sides.check_apart(after, enabled(wanted) if added else {})
            self.sides.check_given(path, after.descriptor.properties, change.properties, wanted)
            plan = plan_alter(before, after, self.sides.evolve_notes(before, after, kept))
            if change.dry_run:
                return TableAnswer(table=after, plan=plan)
            self._alter_lakes(before, after, kept, change)
            fault_point("alter.between-lake-and-hot", table=str(path))
            for name, options in added.items():
                self._enable_lake(after, name, options)
            self.sides.check_apart(after, enabled(wanted) if added else {})
            self._hot.alter_table(after)
            self._coordinator.registry.altered(after)
            if before.schema.schema_id != after.schema.schema_id:
                self.sides.finish_evolve(after, kept)
        for name in added:
            self._coordinator.read_lake(path, name)
        new = [c for c in after.schema.columns if c.column_id not in before.schema.by_id]
        warnings = warn_of_columns(new) if enabled(wanted) else ()
        late = self._warn_of_history(after, added, was)
        return TableAnswer(
            table=after,
            created=False,
            warnings=(*self._coordinator.views.warnings_of(path), *warnings, *late),
            plan=plan,
        )

    def _check_last_side(self, table: TableInfo, change: AlterTable) -> None:
        key = keys.TABLE_DATALAKE_LAKES.key
        if key in change.properties and not (change.properties[key] or "").strip(" ,"):
            reason = f"a table keeps one side at least; {keys.TABLE_DATALAKE_ENABLED.key} = false switches them all off"
            raise InvalidAlter(table=str(table.path), change=f"property {key}", reason=reason)

    def _check_there(self, path: TablePath, change: AlterTable, sides: Sides) -> None:
        asked = (change.properties.get(keys.TABLE_DATALAKE_ENABLED.key) or "").strip().lower()
        if asked == "true" and not enabled(sides):
            raise InvalidAlter(
                table=str(path), change=keys.TABLE_DATALAKE_ENABLED.key, reason="the server has no datalake.format"
            )

    def _check_adopted(self, table: TableInfo, sides: Sides, added: Sequence[SideName]) -> None:
        """Rows that others wrote before a table was ours are in no log: another lake would never have them. A changelog
        begins late anyway, and of a PK table every row is in KV. Raises `InvalidAlter`."""
        added = [n for n in added if n.content is Content.STATE]
        if not added or not table.descriptor.is_clean or table.is_pk:
            return
        if self._is_adopted(table, sides):
            reason = "rows from before it was adopted are in one lake alone, and in no log; copy the table"
            raise InvalidAlter(table=str(table.path), change=f"lake {added[0]}", reason=reason)

    def _is_adopted(self, table: TableInfo, sides: Sides | None = None) -> bool:
        """Were its rows others' once?"""
        for name, options in (self.sides.of(table) if sides is None else sides).items():
            if options.format is None or name.content is not Content.STATE:
                continue
            with suppress(LakeTableGone):
                if self._board.lakes(options.lake).open_reader(side_table(table, name)).adopted is not None:
                    return True
        return False

    def _warn_of_history(self, table: TableInfo, added: Sides, was: Sides) -> list[str]:
        """A lake that comes late gets what the log still has; of a PK table that is every key."""
        late = [name for name in added if not side_table(table, name).is_pk]
        if not late or not enabled(was) or not any(b.start for b in self._hot.bounds(table).values()):
            return []
        others = ", ".join(map(str, was))
        return [
            f"the changelog of {table.path} begins with what the log still has: earlier changes are in no lake"
            if name.content is Content.CHANGELOG and table.is_pk
            else f"lake {name} gets what the log still has: older rows of {table.path} are in {others} alone"
            for name in late
        ]

    def _altered(self, table: TableInfo, change: AlterTable) -> TableInfo:
        after = change_columns(table, change.column_changes())
        properties = {k: v for k, v in {**table.descriptor.properties, **change.properties}.items() if v is not None}
        check_properties(str(table.path), properties, after.descriptor, self._board.options.config)
        if after.schema.schema_id != table.schema.schema_id:
            after = after.with_schema(replace(after.schema, since_ms=self._board.clock.now_ms()))
        return after.with_descriptor(replace(after.descriptor, properties=properties))

    def _alter_lakes(self, table: TableInfo, after: TableInfo, lakes: Sides, change: AlterTable) -> None:
        """Each step is safe to repeat."""
        for name, options in lakes.items():
            side, catalog = side_table(table, name), self.sides.catalog(options)
            with lake_named(options.lake):
                if table.schema.schema_id != after.schema.schema_id:
                    catalog.evolve(side, side_table(after, name))
                if properties := _mutable(change.properties):
                    catalog.set_properties(side, properties)

    def _enable_lake(self, table: TableInfo, name: SideName, options: SideOptions) -> None:
        """A lake table that this very table filled before is taken again."""
        table, catalog = side_table(table, name), self.sides.catalog(options)
        with lake_named(options.lake):
            is_ours = catalog.exists(table.path) and catalog.table_id(table.path) == table.table_id
            if is_ours:
                catalog.evolve(table, table)
            catalog.create(table, adopt=is_ours)

    def reconcile_schema(
        self, path: TablePath, side: SideName | None = None, *, dry_run: bool = False, take_over: bool = False
    ) -> SchemaReconciled:
        """After others changed the lake table's columns or partitioning. A table that stopped because of it goes on.
        `take_over`: columns that they added become the table's own, in all its lakes. Raises `InvalidAlter` for what
        cannot go back."""
        with self._lock:
            table = self._hot.load_table(path)
            options = self.sides.options_of(table, side, f"reconcile-schema of {path}")
            with lake_named(options.lake), self._naming_rebuild(path, side):
                catalog, lake_table = self.sides.catalog(options), side_table(table, side)
                changes = catalog.reconcile_schema(lake_table, dry_run=dry_run)
                foreign = catalog.foreign_columns(lake_table)
        if foreign and take_over:
            added = AlterTable.of_columns(ColumnChanges(add=tuple(foreign)))
            self.alter(path, replace(added, dry_run=dry_run))
            changes = (*changes, *(f"column {c.name} {c.type.sql}: taken over" for c in foreign))
        if changes and not dry_run:
            self._resume_stopped(path, side)
        named = tuple(f"{c.name} {c.type}" for c in foreign)
        return SchemaReconciled(path=path, changes=changes, dry_run=dry_run, foreign=named)

    @contextmanager
    def _naming_rebuild(self, path: TablePath, side: SideName | None) -> Iterator[None]:
        """Adds to an error about a change that cannot be undone that the lake table can be rebuilt."""
        try:
            yield
        except (InvalidAlter, LakeMismatch) as error:
            reason = error.reason if isinstance(error, InvalidAlter) else error.diff
            command = f"lakeward table rebuild-lake {self._board.find(path, side).argument}"
            reason = f"{reason}; `{command}` writes the lake table again from the hot store"
            raise InvalidAlter(table=str(path), change="reconcile-schema", reason=reason) from error

    def _resume_stopped(self, path: TablePath, name: SideName | None) -> None:
        side = self._board.find(path, name)
        if side.state in (TableState.FAILED, TableState.QUARANTINED):
            self._coordinator.operations.resume(path, side.name)

    def restore_lake(self, path: TablePath, side: SideName | None = None, *, anew: bool = False) -> LakeRestored:
        """Restores a dropped lake table from the files that are left; with `anew` and no files, creates an empty one,
        and a resync writes the rows that the hot store still has. Raises `InvalidRequest`."""
        with self._lock:
            table = self._hot.load_table(path)
            what = f"restore-lake of {path}"
            options = self.sides.options_of(table, side, what)
            catalog = self.sides.catalog(options)
            table = side_table(table, side)
            if _can_load(catalog, table.path):
                command = f"lakeward table rebuild-lake {self._board.find(path, side).argument}"
                reason = f"its lake table is in the catalog, there is nothing to restore; `{command}` writes it again"
                raise InvalidRequest(what=what, reason=reason)
            self.sides.check_spread(path, table.descriptor, options)
            source = catalog.restore(table) if isinstance(catalog, SupportsRestore) else None
            if source is None and not anew:
                command = f"lakeward table restore-lake {self._board.find(path, side).argument} --anew"
                reason = f"no files of it are left where the catalog kept them; `{command}` makes an empty lake table, "
                raise InvalidRequest(what=what, reason=f"{reason}and a resync writes what the hot store still has")
            if source is None:
                catalog.create(table)
        if source is None:
            self._coordinator.operations.resync(path, ResyncChoice.RESYNC, side)
        else:
            self._resume_stopped(path, side)
        return LakeRestored(path=path, source=source)

    def rebuild_lake(self, path: TablePath, side: SideName | None = None, *, discard_older: bool = False) -> None:
        """Removes the lake table and has it written again from the hot store: for one whose columns others changed so
        that there is no way back. `discard_older`: also where the lake alone has some rows. Raises `InvalidRequest`,
        `LakeForeign`, before anything changed."""
        with self._lock:
            table, name = self._hot.load_table(path), self._board.find(path, side).name
            argument, what = self._board.find(path, side).argument, f"rebuild-lake of {path}"
            options = self.sides.options_of(table, name, what)
            self.sides.check_spread(path, table.descriptor, options)
            own = self._own.find(table, name, options)
            if own is None:
                raise LakeTableGone(table=str(path))
            if self._hot.behind(table) and not discard_older:
                reason = f"the lake has newer rows than the hot store; `lakeward table resync {argument}` loads them"
                raise InvalidRequest(what=what, reason=reason)
            older = 0 if discard_older else self._own.only_in_lake(table, name)
            if older:
                reason = f"up to {older:,} rows are in this lake table and no longer in the hot store; "
                command = f"lakeward table rebuild-lake {argument} --discard-older"
                raise InvalidRequest(what=what, reason=f"{reason}`{command}` lets go of them")
            own.drop()
            with lake_named(options.lake):
                own.catalog.create(side_table(table, name))
        self._coordinator.operations.resync(path, ResyncChoice.RESYNC, name)

    # ---- drop ----
    def drop(self, path: TablePath, *, with_lake: bool = False) -> tuple[str, ...]:
        """Rounds stop first, then the hot side goes. The lake table stays as it is, unless `with_lake`: then it goes
        last, also where the hot side is gone already; the lakes it was in are returned. One that is being adopted is
        not adopted then. Raises `TableNotFound`, and with the lake `LakeUnavailable`, `LakeForeign` and
        `InvalidRequest`, before anything changed."""
        if self.adoptions.cancel(path):
            return ()
        with self._lock:
            table = self._find(path)
            if not with_lake:
                own = []
            else:
                own = self._own.left_behind(path) if table is None else self._own.of_table(table)
            if table is None and not own:
                raise TableNotFound(table=str(path))
            if table is not None:
                self._coordinator.registry.dropped(path)
                self._hot.drop_table(path)
            for lake_table in own:
                lake_table.drop()
        return tuple(lake_table.lake for lake_table in own)


def _check_again(what: str, adopted: AdoptedRows | None, request: AdoptTable) -> None:
    """A lake table that is ours already: may it be adopted as this once more? Raises `InvalidRequest`."""
    if adopted is None:
        raise InvalidRequest(what=what, reason="it has snapshots of ours; adopt it without --foreign")
    if (adopted.buckets is not None) != bool(request.primary_key):
        was = "a log table" if adopted.buckets is None else "a table with a primary key"
        raise InvalidRequest(what=what, reason=f"it was adopted as {was} before, and stays one")
    if adopted.buckets not in (None, request.bucket_count):
        raise InvalidRequest(what=what, reason=f"it was adopted with --buckets {adopted.buckets} before")


def _mutable(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """Properties that lake tables carry too; which lakes there are is none of them."""
    about = tuple(
        o.key for o in (keys.TABLE_DATALAKE_ENABLED, keys.TABLE_DATALAKE_LAKES, keys.TABLE_DATALAKE_CHANGELOG)
    )
    return {k: v for k, v in changes.items() if not k.startswith(about)}


def _can_load(catalog: LakeCatalog, path: TablePath) -> bool:
    try:
        return catalog.exists(path)
    except LakeMetadataGone:
        return False
