# SPDX-License-Identifier: Apache-2.0
"""DDL on lake tables: create, match, alter, adopt, drop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence

from lakeward.errors import InvalidRequest, LakeNotEmpty, LakeTableGone
from lakeward.model import Column, TableDescriptor, TableId, TableInfo, TablePath
from lakeward.spi.lakeerrors import TypedCalls

OWN_PROPERTY = "fluss.table.datalake."
"""Prefix of the property that every lake table of Lakeward has since its creation: its lakes, or its format."""


_PROBED_TABLE = TablePath("lakeward", "probe")


def is_own(properties: Iterable[str]) -> bool:
    """By the names of a lake table's properties."""
    return any(name.startswith(OWN_PROPERTY) for name in properties)


class LakeCatalog(TypedCalls, ABC):
    """DDL on lake tables. Called by the server's federation, before the hot store is changed. All calls may block."""

    def check(self) -> None:
        """Checks at server start that the configuration is right and that the lake answers. Safe to repeat. Default:
        looks up a table.

        Raises `InvalidConfig` for what a person must mend, `LakeUnavailable` for what may heal by itself."""
        self.exists(_PROBED_TABLE)

    def check_descriptor(self, path: TablePath, descriptor: TableDescriptor) -> None:
        """Checks that this table can exist in this format. Pure. Raises `UnsupportedType`, `InvalidTable`,
        `UnsupportedBucketKey`. Default: the format holds every table that its capabilities allow."""
        return

    @abstractmethod
    def create(self, table: TableInfo, *, adopt: bool = False) -> bool:
        """Creates the lake table; true if this call made it. Safe to repeat: one that exists and matches is taken.

        Raises `LakeMismatch` with a diff; `LakeNotEmpty` when it has snapshots, unless `adopt`. A crash leaves the lake
        table made or not made, nothing between."""

    def check_create(self, table: TableInfo, *, adopt: bool = False) -> None:
        """Would `create` take the lake table of that name, if there is one? Asked of all of a table's lakes before the
        first is changed; changes nothing. Raises as `create`."""
        if self.exists(table.path):
            self.validate(table)
            if not adopt and self.table_id(table.path) not in (None, table.table_id):
                raise LakeNotEmpty(table=str(table.path))

    @abstractmethod
    def validate(self, table: TableInfo) -> None:
        """Does the lake table still fit? Raises `LakeMismatch`, `LakeTableGone`. Mutable properties do not count."""

    def check_given(self, path: TablePath, properties: Mapping[str, str], said: Collection[str]) -> None:
        """Checks the properties of a table that is created or altered. `properties`: all that the table will have;
        `said`: the keys that the caller sets or removes. Among keys with the format's prefix, refuses unknown ones and
        values that would break rounds; values that the table had before are not checked. Pure. Raises `InvalidTable`.
        """
        return

    def check_alter(self, table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
        """Would `add_columns` and `set_properties` take these? Asked of all of a table's lakes before the first is
        changed; changes nothing. Raises as they do, `LakeUnavailable` and `LakeTableGone` too."""
        if not self.exists(table.path):
            raise LakeTableGone(table=str(table.path))

    @abstractmethod
    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> None:
        """Adds nullable columns last, before the system columns. `table` is as before the change. Safe to repeat."""

    def check_evolve(self, table: TableInfo, after: TableInfo) -> None:
        """Would `evolve` take these? Asked of all of a table's lakes before the first is changed; changes nothing.
        Raises as it does, `LakeUnavailable` and `LakeTableGone` too."""
        self.check_alter(table, _later_columns(table, after), {})

    def evolve(self, table: TableInfo, after: TableInfo) -> None:
        """Brings the lake table's columns, found by column id, to those of `after`. `table` is as before the change, or
        the same as `after` where the lake was off while columns changed. Safe to repeat, and to follow with another
        `after`: the lake table then has that one's columns. Rounds that were planned before go on. Raises
        `InvalidAlter`, `LakeMismatch`. A format that only adds columns leaves this as it is."""
        self.add_columns(table, _later_columns(table, after))

    def evolve_notes(self, table: TableInfo, after: TableInfo) -> tuple[str, ...]:
        """Describes for the plan what other readers of the format must support after `evolve`. Pure."""
        return ()

    def finish_evolve(self, table: TableInfo) -> None:
        """Called after the hot store has the columns of `table` too: takes dropped columns out of the lake table that
        `evolve` kept for reads of the schema before. Safe to repeat; after a crash the next change does it."""
        return

    def reconcile_schema(self, table: TableInfo, *, dry_run: bool = False) -> tuple[str, ...]:
        """Restores the columns and partitioning that rounds need in the lake table after other engines changed them;
        harmless changes stay. Returns a description of the changes, empty if the table fits; `dry_run` makes none. Safe
        to repeat. Raises `InvalidAlter` for a change that cannot be undone, and then changes nothing;
        `LakeUnavailable`, `LakeTableGone`. Formats whose tables other engines cannot change return an empty tuple."""
        self.validate(table)
        return ()

    def foreign_columns(self, table: TableInfo) -> Sequence[Column]:
        """Columns of the lake table that another engine added and the table does not have. Raises `LakeUnavailable`,
        `LakeTableGone`, `UnsupportedType` for one that no table can have."""
        return ()

    def drop(self, path: TablePath) -> None:
        """Removes a lake table with its rows and its history. Safe to repeat. After a crash in the middle nothing can
        be read, and files may be left. Raises `LakeUnavailable`, `InvalidRequest` for a format that cannot."""
        raise InvalidRequest(what=f"removal of lake table {path}", reason="its lake format cannot; remove it there")

    def is_own_and_empty(self, path: TablePath) -> bool:
        """Was a lake table that exists made by Lakeward, and never given a row? May block. False where a format cannot
        tell."""
        return False

    @abstractmethod
    def set_properties(self, table: TableInfo, changes: Mapping[str, str | None]) -> None:
        """Sets properties, or removes those given as None, under the format's key mapping. Safe to repeat."""

    @abstractmethod
    def exists(self, path: TablePath) -> bool:
        """Is there a lake table of that name?"""

    def location(self, path: TablePath) -> str | None:
        """Where the files of a lake table that exists lie: the same for two lakes that are one place under two names.
        None: the format cannot tell. Raises `LakeUnavailable`, `LakeTableGone`."""
        return None

    @abstractmethod
    def table_id(self, path: TablePath) -> TableId | None:
        """The table id that our newest snapshot there carries; None without one. For adoption."""


def _later_columns(table: TableInfo, after: TableInfo) -> list[Column]:
    """Columns that `table` has not; where both are one, all that may have been added since it was created."""
    if table.schema.schema_id != after.schema.schema_id:
        return [c for c in after.schema.columns if c.column_id not in table.schema.by_id]
    columns = after.schema.columns if after.schema.schema_id > 1 else ()
    return [c for c in columns if c.type.nullable and c.name not in after.descriptor.primary_key]
