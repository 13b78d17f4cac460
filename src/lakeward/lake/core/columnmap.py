# SPDX-License-Identifier: Apache-2.0
"""Which stored column of a lake table each column of its table is, for formats whose files find columns by a key of
their own: a physical name or a field id. Pure.

A table that never changed its columns has no map: there, and for columns that the map does not name, names decide. The
map says for which schema of the table the lake's columns were made: while an ALTER is under way, rounds and reads that
were planned with an older schema see the lake table as that schema had it.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakeward.errors import InvalidAlter, InvalidTable, LakeMismatch
from lakeward.lake.core.catalog import WarehouseCatalog
from lakeward.lake.core.log import G
from lakeward.model import Column, Schema, TableInfo, may_widen, refuse_type

COLUMN_IDS = "lakeward.column-ids"
SCHEMA_ID = "lakeward.schema-id"
_KEY = b"lakeward.stored-as"


@dataclass(frozen=True)
class StoredColumn:
    """A column of a lake table, and the key that files have it under; an empty one is still to be chosen. A column
    that another engine added has the column id 0."""

    column: Column
    key: str


@dataclass(frozen=True)
class ColumnMap:
    """`keys`: column id -> key, of dropped columns too."""

    keys: Mapping[int, str] = field(default_factory=dict)
    schema_id: int = 0

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> ColumnMap:
        keys = {int(column): key for column, key in json.loads(properties.get(COLUMN_IDS, "{}")).items()}
        return cls(keys, int(properties.get(SCHEMA_ID, "0")))

    def to_properties(self) -> dict[str, str]:
        spelled = json.dumps({str(k): v for k, v in sorted(self.keys.items())}, separators=(",", ":"))
        return {COLUMN_IDS: spelled, SCHEMA_ID: str(self.schema_id)}

    def view(self, stored: Sequence[StoredColumn], planned: Schema) -> list[StoredColumn]:
        """The lake's columns under the names of a schema of the table; columns of other engines come last. For a schema
        that is older than the lake's, also with its types and the columns that were dropped since. Our columns that a
        newer schema does not have are left out."""
        if not self.keys:
            return list(stored)
        ours, is_older = list[StoredColumn](), planned.schema_id < self.schema_id
        by_key, keys = {s.key: s for s in stored}, self.find(stored, planned)
        for column in planned.columns:
            key = keys.get(column.column_id)
            lake = None if key is None else by_key.get(key)
            if key is not None and is_older:
                ours.append(StoredColumn(column, key))
            elif lake is not None:
                ours.append(StoredColumn(replace(lake.column, name=column.name, column_id=column.column_id), lake.key))
        used, names = {s.key for s in ours}, {s.column.name for s in ours}
        used |= set() if is_older else set(self.keys.values())
        return [*ours, *(_beside(s, names) for s in stored if s.key not in used)]

    def find(self, stored: Sequence[StoredColumn], schema: Schema) -> dict[int, str]:
        """Column id -> key of a schema's columns: by the map, else by name."""
        taken = set(self.keys.values())
        by_name = {s.column.name: s.key for s in stored if s.key not in taken}
        keys = {c.column_id: self.keys.get(c.column_id, by_name.get(c.name)) for c in schema.columns}
        return {column_id: key for column_id, key in keys.items() if key is not None}


def plan_columns(
    before: TableInfo, after: TableInfo, stored: Sequence[StoredColumn], known: ColumnMap, *, keys_return: bool = False
) -> tuple[list[StoredColumn], ColumnMap]:
    """The lake's columns for `after`, and their map without the keys that are still to be chosen. Columns that other
    engines added come last. `keys_return`: a column that left the lake table can have its key again. Raises
    `InvalidAlter`, `LakeMismatch` for what the lake table cannot take."""
    return _Plan(before, after, stored, known, keys_return).run()


def foreign_columns(stored: Sequence[StoredColumn], known: ColumnMap, schema: Schema) -> list[Column]:
    """Columns that another engine added."""
    ours = {*known.keys.values(), *known.find(stored, schema).values()}
    return [s.column for s in stored if s.key not in ours]


class _Plan:
    def __init__(
        self,
        before: TableInfo,
        after: TableInfo,
        stored: Sequence[StoredColumn],
        known: ColumnMap,
        keys_return: bool,
    ) -> None:
        self._before, self._after, self._keys_return = before, after, keys_return
        self._by_key = {s.key: s for s in stored}
        self._keys = {**known.keys, **known.find(stored, before.schema)}
        taken = set(self._keys.values())
        self._foreign = {s.column.name: s for s in stored if s.key not in taken}

    def run(self) -> tuple[list[StoredColumn], ColumnMap]:
        ours = [self._stored(column) for column in self._after.schema.columns]
        used, names = {s.key for s in ours}, {s.column.name for s in ours}
        foreign = [s for s in self._foreign.values() if s.key not in used]
        for one in foreign:
            if one.column.name in names:
                reason = "the lake table has another column of that name, which another engine added; rename it there"
                raise self._wrong(f"name column {one.column.name}", reason)
        beside = [StoredColumn(replace(s.column, column_id=0), s.key) for s in foreign]
        keys = {c: k for c, k in self._keys.items() if k} | {s.column.column_id: s.key for s in ours if s.key}
        return [*ours, *beside], ColumnMap(keys, self._after.schema.schema_id)

    def _stored(self, column: Column) -> StoredColumn:
        is_new = column.column_id not in self._before.schema.by_id
        key = self._find_added(column) if is_new else self._keys.get(column.column_id)
        lake = self._by_key.get(key or "")
        if key is None or (lake is None and (is_new or not self._keys_return)):
            if column.default is not None:
                reason = "its older rows would have NULL in the lake; add the column without a default"
                raise self._wrong(f"add column {column.name} with a default", reason)
            self._keys.pop(column.column_id, None)
            return StoredColumn(self._nullable(column), "")
        if lake is None:  # dropped by an ALTER that did not come to its end
            return StoredColumn(self._nullable(column), key)
        if not may_widen(lake.column.type, column.type):
            raise refuse_type(self._before, column, lake.column.type.sql)
        is_nullable = lake.column.type.nullable or column.type.nullable
        return StoredColumn(replace(column, type=column.type.with_nullable(is_nullable)), key)

    def _find_added(self, column: Column) -> str | None:
        """A column that is there already: another engine added it, or an ALTER that did not come to its end. One that
        such an ALTER made under this id with another name is another column, and goes. Raises `LakeMismatch`."""
        left = self._by_key.get(self._keys.get(column.column_id, ""))
        lake = left if left is not None and left.column.name == column.name else self._foreign.get(column.name)
        if lake is not None and lake.column.type.sql != column.type.sql:
            diff = f"column {column.name}: expected {column.type.sql}, found {lake.column.type.sql}"
            raise LakeMismatch(table=str(self._after.path), diff=diff)
        return None if lake is None else lake.key

    def _nullable(self, column: Column) -> Column:
        return replace(column, type=column.type.with_nullable(True))

    def _wrong(self, change: str, reason: str) -> InvalidAlter:
        return InvalidAlter(table=str(self._after.path), change=change, reason=reason)


def stored_field(field: pa.Field, key: str) -> pa.Field:
    """An Arrow field that says the key of its column, where that is not its name."""
    return field if key == field.name else field.with_metadata({**(field.metadata or {}), _KEY: key.encode()})


def stored_key(field: pa.Field) -> str:
    """The key of a field that `stored_field` made; the name of any other field."""
    return str((field.metadata or {}).get(_KEY, field.name.encode()).decode())


def without_keys(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_plain(f) for f in schema])


def _plain(field: pa.Field) -> pa.Field:
    if _KEY not in (field.metadata or {}):
        return field
    return field.with_metadata({k: v for k, v in field.metadata.items() if k != _KEY})


def _beside(stored: StoredColumn, names: set[str]) -> StoredColumn:
    column = stored.column
    if column.name in names:
        column = replace(column, name=f"{column.name}#{stored.key}")
    return StoredColumn(column, stored.key)


def with_new_keys(columns: Sequence[StoredColumn], keys: Iterator[str]) -> list[StoredColumn]:
    """Each column that has no key yet is given the next one."""
    return [s if s.key else StoredColumn(s.column, next(keys)) for s in columns]


class MappedCatalog(WarehouseCatalog[G]):
    """`evolve` is given a schema, not a change: the same call after a crash, or another one in its place, ends with
    the same columns."""

    drops_late = False
    """A dropped column stays in the lake table, under another name, until the hot store has dropped it too: files of
    this format can only be read by columns that the table has."""

    @abstractmethod
    def stored(self, ground: G) -> Sequence[StoredColumn]:
        """The user's columns, with the keys under which files have them. Raises `UnsupportedType`."""

    @abstractmethod
    def put_evolved(self, ground: G, table: TableInfo, columns: Sequence[StoredColumn], column_map: ColumnMap) -> bool:
        """Gives the lake table these columns in one commit on this ground; those without a key get one, which goes into
        the map. `table`: as it is to be. False: the head moved."""

    def column_map(self, ground: G) -> ColumnMap:
        return ColumnMap.parse(self.properties(ground))

    def check_stored(self, before: TableInfo, old: Sequence[StoredColumn], new: Sequence[StoredColumn]) -> None:
        """Raises `InvalidAlter` for what the format cannot do."""
        return

    def columns(self, ground: G) -> Sequence[Column]:
        return [s.column for s in self.stored(ground)]

    def put_columns(self, ground: G, table: TableInfo, columns: Sequence[Column]) -> bool:
        stored = [*self.stored(ground), *(StoredColumn(c, "") for c in columns)]
        return self.put_evolved(ground, table, stored, self.column_map(ground))

    def check_evolve(self, table: TableInfo, after: TableInfo) -> None:
        try:
            self.check_columns(after.schema.columns, str(table.path))
        except InvalidTable as error:
            change = f"column {error.value}"
            raise InvalidAlter(table=str(table.path), change=change, reason=error.reason) from error
        self._plan(self.open_log(table.path).load(), table, after)

    def evolve(self, table: TableInfo, after: TableInfo) -> None:
        def change(ground: G) -> bool:
            columns, column_map = self._plan(ground, table, after)
            known = self.column_map(ground)
            if columns == list(self.stored(ground)) and (column_map == known or not known.keys):
                return True
            return self.put_evolved(ground, after, columns, column_map)

        self._alter(table, change)

    def foreign_columns(self, table: TableInfo) -> Sequence[Column]:
        ground = self.open_log(table.path).load()
        return foreign_columns(self.stored(ground), self.column_map(ground), table.schema)

    def reconcile_schema(self, table: TableInfo, *, dry_run: bool = False) -> tuple[str, ...]:
        """Columns that another engine dropped, or that a version it restored lacks, come back. Where the format forgets
        the key of a dropped column, their values come with a resync."""
        ground = self.open_log(table.path).load()
        shown = {c.name for c in self.shown_columns(ground, table)}
        missing = [c.name for c in table.schema.columns if c.name not in shown]
        self._plan(ground, table, table)
        if missing and not dry_run:
            self.evolve(table, table)
        result = "added; a resync writes its values" if self.drops_late else "in the lake table again"
        return tuple(f"column {name}: {result}" for name in missing)

    def finish_evolve(self, table: TableInfo) -> None:
        if self.drops_late:
            self.evolve(table, table)

    def _plan(self, ground: G, before: TableInfo, after: TableInfo) -> tuple[list[StoredColumn], ColumnMap]:
        stored, known = self.stored(ground), self.column_map(ground)
        columns, column_map = plan_columns(before, after, stored, known, keys_return=not self.drops_late)
        self.check_stored(before, stored, columns)
        if not self.drops_late:
            return columns, column_map
        return keep_dropped(columns, stored, known, before, after), column_map

    def shown_columns(self, ground: G, table: TableInfo) -> Sequence[Column]:
        """One that became nullable here alone fits."""
        view, by_id = (
            self.column_map(ground).view(self.stored(ground), table.schema),
            table.schema.by_id,
        )
        return [_fitting(s.column, by_id.get(s.column.column_id)) for s in view]

    def is_ahead(self, ground: G, table: TableInfo) -> bool:
        return self.column_map(ground).schema_id > table.schema.schema_id


def _fitting(lake: Column, due: Column | None) -> Column:
    return due if due is not None and lake.type == due.type.with_nullable(True) else lake


def keep_dropped(
    columns: list[StoredColumn], stored: Sequence[StoredColumn], known: ColumnMap, before: TableInfo, after: TableInfo
) -> list[StoredColumn]:
    """With the columns that the change drops, last and under names of their own."""
    dropped = {k: i for i, k in known.find(stored, before.schema).items() if i not in after.schema.by_id}
    return [*columns, *(StoredColumn(_late(s.column, dropped[s.key]), s.key) for s in stored if s.key in dropped)]


def _late(column: Column, column_id: int) -> Column:
    return replace(column, name=f"{column.name.partition('#')[0]}#{column_id}", type=column.type.with_nullable(True))
