# SPDX-License-Identifier: Apache-2.0
"""DDL on lake tables of a format whose log keeps columns and properties: create, match, alter, drop."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from lakeward.bucketing import check_bucket_keys
from lakeward.errors import InvalidAlter, InvalidTable, LakeForeign, LakeMismatch, LakeNotEmpty, LakeUnavailable
from lakeward.lake.core.columns import check_partition_keys
from lakeward.lake.core.failures import lake_errors
from lakeward.lake.core.history import new_history
from lakeward.lake.core.log import G, SnapshotLog
from lakeward.lake.core.reconcile import find_owner
from lakeward.lake.warehouse import Warehouse
from lakeward.model import Column, TableDescriptor, TableId, TableInfo, TablePath
from lakeward.spi import LakeCatalog, is_own


@dataclass(frozen=True)
class Allowed:
    """Allowed values of a property: a pattern, and its description for error messages. Case does not matter."""

    pattern: str
    words: str

    @classmethod
    def of(cls, *values: str) -> Allowed:
        return cls("|".join(map(re.escape, values)), f"{', '.join(values[:-1])} or {values[-1]}")

    def check(self, path: TablePath, key: str, value: str) -> None:
        """Raises `InvalidTable`."""
        if not re.fullmatch(self.pattern, value.strip(), re.IGNORECASE):
            raise InvalidTable(table=str(path), field=key, value=value, reason=f"allowed is {self.words}")


ANY = Allowed(r"(?s:.*)", "anything")
SWITCH = Allowed.of("true", "false")
NUMBER = Allowed(r"\d+", "a whole number")
HISTORY = {"history.expire.max-snapshot-age-ms": NUMBER, "history.expire.min-snapshots-to-keep": NUMBER}


def check_allowed(
    path: TablePath,
    prefix: str,
    properties: Mapping[str, str],
    said: Collection[str],
    allowed: Mapping[str, Allowed],
) -> None:
    """`allowed`: names without the prefix; a name that ends in a dot allows every name that begins with it. Raises
    `InvalidTable`."""
    for key in (k for k in said if k.startswith(prefix) and k in properties):
        name = key.removeprefix(prefix)
        rules = [a for n, a in allowed.items() if n == name or (n.endswith(".") and name.startswith(n))]
        if not rules:
            names = ", ".join(f"{prefix}{n}{'*' if n.endswith('.') else ''}" for n in allowed)
            reason = f"rounds do not know it; allowed are {names}"
            raise InvalidTable(table=str(path), field=key, value=properties[key], reason=reason)
        rules[0].check(path, key, properties[key])


_ATTEMPTS = 10
"""Some formats need four commits for one change of columns."""


class CoreCatalog(LakeCatalog, Generic[G]):
    lake: str

    @abstractmethod
    def open_log(self, path: TablePath) -> SnapshotLog[G, Any, Any]: ...

    @abstractmethod
    def columns(self, ground: G) -> Sequence[Column]:
        """Returns the user's columns. Raises `UnsupportedType`."""

    @abstractmethod
    def properties(self, ground: G) -> Mapping[str, str]: ...

    @abstractmethod
    def layout(self, ground: G) -> Mapping[str, str]:
        """Describes the table's partitions and primary key, which may not change."""

    @abstractmethod
    def expected_layout(self, descriptor: TableDescriptor) -> Mapping[str, str]:
        """Describes partitions and primary key of a descriptor in the same form as `layout`."""

    @abstractmethod
    def make(self, table: TableInfo, properties: Mapping[str, str]) -> bool:
        """Creates the lake table in one step. False: a table exists there."""

    @abstractmethod
    def put_columns(self, ground: G, table: TableInfo, columns: Sequence[Column]) -> bool:
        """Adds columns that the lake table lacks, in one commit on this ground. False: the head moved."""

    @abstractmethod
    def put_properties(self, ground: G, table: TableInfo, changes: Mapping[str, str | None]) -> bool:
        """Sets properties in one commit on this ground. False: the head moved."""

    def shown_columns(self, ground: G, table: TableInfo) -> Sequence[Column]:
        """The lake's columns as this schema of the table sees them."""
        return self.columns(ground)

    def is_ahead(self, ground: G, table: TableInfo) -> bool:
        """Whether the lake table already has the schema of an ALTER that is not finished. Its layout then has the newer
        names."""
        return False

    def check_columns(self, columns: Sequence[Column], table: str) -> None:
        """Raises `InvalidTable`, `UnsupportedType` for what the format cannot hold."""
        return

    def why_not(self, lake_key: str) -> str | None:
        """Returns the reason why a lake property may not be set; None: it may be set."""
        return None

    def lake_key(self, key: str) -> str:
        """Maps a table property to a lake property: `delta.X` is Delta's own X; `delta.history.X` and `delta.write.X`
        are read by Lakeward alone; other keys are stored for the hot store."""
        if key.startswith((f"{self.lake}.history.", f"{self.lake}.write.")):
            return f"lakeward.{key.removeprefix(f'{self.lake}.')}"
        return key if key.startswith((f"{self.lake}.", "lakeward.")) else f"fluss.{key}"

    def check_descriptor(self, path: TablePath, descriptor: TableDescriptor) -> None:
        check_bucket_keys(descriptor)
        self.check_columns(descriptor.schema.columns, str(path))
        for key, value in descriptor.properties.items():
            if reason := self.why_not(self.lake_key(key)):
                raise InvalidTable(table=str(path), field=key, value=value, reason=reason)

    def create(self, table: TableInfo, *, adopt: bool = False) -> bool:
        self.check_descriptor(table.path, table.descriptor)
        properties = {self.lake_key(k): v for k, v in table.descriptor.properties.items()}
        if not self.exists(table.path) and self.make(table, {**new_history(), **properties}):
            return True
        self.check_create(table, adopt=adopt)
        return False

    def check_create(self, table: TableInfo, *, adopt: bool = False) -> None:
        if not self.exists(table.path):
            return
        log = self.open_log(table.path)
        ground = log.load()
        self._check_match(ground, table)
        check_owner(table, find_owner(log, ground), has_snapshots=ground.head_id is not None, adopt=adopt)

    def validate(self, table: TableInfo) -> None:
        self._check_match(self.open_log(table.path).load(), table)

    def check_alter(self, table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
        self._check_changes(table, columns, changes)
        missing_columns(table, self.columns(self.open_log(table.path).load()), columns)

    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> None:
        self._check_changes(table, columns, {})

        def add(ground: G) -> bool:
            missing = missing_columns(table, self.columns(ground), columns)
            return not missing or self.put_columns(ground, table, missing)

        self._alter(table, add)

    def set_properties(self, table: TableInfo, changes: Mapping[str, str | None]) -> None:
        self._check_changes(table, (), changes)
        own = new_history()
        wanted = {key: own.get(key) if v is None else v for k, v in changes.items() for key in [self.lake_key(k)]}

        def put(ground: G) -> bool:
            have = self.properties(ground)
            return all(have.get(k) == v for k, v in wanted.items()) or self.put_properties(ground, table, wanted)

        self._alter(table, put)

    def is_own_and_empty(self, path: TablePath) -> bool:
        ground = self.open_log(path).load()
        return is_own(self.properties(ground)) and ground.head_id is None

    def table_id(self, path: TablePath) -> TableId | None:
        log = self.open_log(path)
        return find_owner(log, log.load())

    def _alter(self, table: TableInfo, change: Any) -> None:
        """Applies a change to the current version, and tries again when a round commits meanwhile."""
        log = self.open_log(table.path)
        for _ in range(_ATTEMPTS):
            if change(log.load()):
                return
        raise LakeUnavailable(lake=self.lake, what=f"alter {table.path}", reason="other commits kept landing")

    def _check_changes(self, table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
        try:
            self.check_columns(columns, str(table.path))
        except InvalidTable as error:
            change = f"add {error.value}"
            raise InvalidAlter(table=str(table.path), change=change, reason=error.reason) from error
        for column in columns:
            if not column.type.nullable:
                reason = "an added column must be nullable"
                raise InvalidAlter(table=str(table.path), change=f"add {column.name}", reason=reason)
        for key in changes:
            if reason := self.why_not(self.lake_key(key)) or "":
                raise InvalidAlter(table=str(table.path), change=f"property {key}", reason=reason)

    def _check_match(self, ground: G, table: TableInfo) -> None:
        diff = diff_columns(self.shown_columns(ground, table), table.descriptor.schema.columns)
        have = self.layout(ground)
        due = have if self.is_ahead(ground, table) else self.expected_layout(table.descriptor)
        diff += [f"{k}: lake {have[k] or 'none'}, wanted {v or 'none'}" for k, v in due.items() if have[k] != v]
        if diff:
            raise LakeMismatch(table=str(table.path), diff="; ".join(diff))


class WarehouseCatalog(CoreCatalog[G]):
    """Catalog of a format whose tables are folders below a warehouse."""

    allowed: Mapping[str, Allowed]
    """Lake properties that a table may have, without the format's prefix."""

    has_time_partitions = False

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def check(self) -> None:
        self._warehouse.check()

    def check_descriptor(self, path: TablePath, descriptor: TableDescriptor) -> None:
        super().check_descriptor(path, descriptor)
        check_partition_keys(path, descriptor, by_time=self.has_time_partitions)

    def check_given(self, path: TablePath, properties: Mapping[str, str], said: Collection[str]) -> None:
        check_allowed(path, f"{self.lake}.", properties, said, self.allowed)

    def location(self, path: TablePath) -> str:
        return self._warehouse.folder(path)

    def drop(self, path: TablePath) -> None:
        with lake_errors(self.lake)(str(path), "drop"):
            self._warehouse.files.remove_folder(self.location(path))

    def expected_layout(self, descriptor: TableDescriptor) -> Mapping[str, str]:
        return {"primary key": ",".join(descriptor.primary_key), "partitions": ",".join(descriptor.partition_keys)}


def missing_columns(table: TableInfo, have: Sequence[Column], columns: Sequence[Column]) -> list[Column]:
    """Returns the columns that the lake table does not have yet. Raises `LakeMismatch`."""
    by_name = {c.name: c for c in have}
    for column in columns:
        known = by_name.get(column.name, column)
        if known.type != column.type:
            diff = f"column {column.name}: lake {known.type}, wanted {column.type}"
            raise LakeMismatch(table=str(table.path), diff=diff)
    return [c for c in columns if c.name not in by_name]


def diff_columns(have: Sequence[Column], due: Sequence[Column]) -> list[str]:
    """Describes each difference in one line; the order of columns counts."""
    types, expected = {c.name: str(c.type) for c in have}, {c.name: str(c.type) for c in due}
    diff = [
        f"column {name}: lake {types.get(name, 'has none')}, wanted {expected.get(name, 'none')}"
        for name in dict.fromkeys((*types, *expected))
        if types.get(name) != expected.get(name)
    ]
    if not diff and list(types) != list(expected):
        diff.append(f"column order: lake {', '.join(types)}, wanted {', '.join(expected)}")
    return diff


def check_owner(table: TableInfo, owner: TableId | str | None, *, has_snapshots: bool, adopt: bool) -> None:
    """`owner`: the table id in our newest commit. Raises `LakeNotEmpty`, `LakeForeign`."""
    if not has_snapshots or owner == table.table_id:
        return
    if not adopt:
        raise LakeNotEmpty(table=str(table.path))
    if owner is not None:
        raise LakeForeign(table=str(table.path), found=owner, expected=table.table_id)
