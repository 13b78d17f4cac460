# SPDX-License-Identifier: Apache-2.0
"""What the oracle wants of a format: readers that give Arrow tables, and the deeds of other engines."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from lakeward_testing.oracle.columns import Alteration

Read = Callable[[str], pa.Table]
"""The rows of a table, by its path `database.table`."""

FAR = 10**12
"""An offset that no log of ours reaches: a foreign row's."""


class Effect(StrEnum):
    """What a deed leaves behind, which says what the documented way out is."""

    KEEPS = "keeps"
    """The rows stay what they are: rounds go on by themselves."""

    INSERTS = "inserts"
    """Rows of a PK table are there that nobody wrote through Lakeward: resync, or `foreign-rows=remove`."""

    DELETES = "deletes"
    """Rows of ours are gone. A resync brings those of a PK table back; those of a log table stay deleted."""

    ALTERS = "alters"
    """Rows of ours have other values: a resync of the PK table."""

    ROLLS_BACK = "rolls-back"
    """An older snapshot is the newest one: rounds stop until a resync."""

    BREAKS_SCHEMA = "breaks-schema"
    """reconcile-schema."""

    DROPS = "drops"
    """The lake table is gone: restore-lake."""


@dataclass(frozen=True)
class Target:
    """A table of a play as another engine sees it."""

    path: str
    is_pk: bool
    is_partitioned: bool
    columns: Mapping[str, str]
    """Name -> type, without the key and the system columns."""

    @property
    def column(self) -> str:
        """A column that is no key."""
        return next(iter(self.columns))

    @property
    def number(self) -> str:
        """The column by which a log table's row is told from all others, and a PK table's from most."""
        return "k" if self.is_pk else "r"


Act = Callable[[Target, Random], Sequence[Any] | None]
"""A deletion gives the keys of the rows that are gone."""

Alter = Callable[[Target, Alteration], None]


@dataclass(frozen=True)
class Deed:
    name: str
    effect: Effect
    act: Act
    needs_flat: bool = False
    """Only on tables without partitions."""


class Engines:
    """`read` and `deeds` are filled by the format's module. `hurt`: how an engine's attempt ends when a commit of ours
    was quicker, or files went meanwhile; nothing has happened then."""

    format = ""
    hurt: tuple[type[Exception], ...] = (OSError,)
    no_types: Sequence[str] = ()
    """Beginnings of column types that the format or one of its readers does not take."""

    cannot_show: Mapping[str, Sequence[str]] = {}
    """Reader -> beginnings of column types that it is known to show wrongly, or not to read."""

    late_columns: Sequence[str] = ()
    """Readers that show an added column once a commit has written it."""

    no_keys: Sequence[str] = ()
    """Texts that the format refuses as values of a key column."""

    adds_columns_only = True
    """Whether ALTER TABLE of a table with this lake adds columns and does nothing else."""

    can_restore = True
    """Whether a dropped lake table can be put back; else it is made empty and resynced."""

    keeps_cuts = True
    """Whether other engines leave the snapshots of cuts alone: the format has tags."""

    def __init__(self, url: str, warehouse: Path) -> None:
        self.url, self.warehouse = url, warehouse
        self.read: dict[str, Read] = {}
        self.deeds: list[Deed] = []
        self.alters: dict[str, Alter] = {}
        """Engine -> its ALTER TABLE through the server, which changes the table itself."""

    def properties(self, chance: Random) -> dict[str, str]:
        """Of new tables: eager expiry, so that minutes meet what takes days."""
        expiry = {"history.expire.max-snapshot-age-ms": "15000", "history.expire.min-snapshots-to-keep": "3"}
        return {f"{self.format}.{key}": value for key, value in expiry.items()}

    def can_read(self, reader: str, target: Target) -> bool:
        return not any(kind.startswith(tuple(self.cannot_show.get(reader, ()))) for kind in target.columns.values())

    def add(self, effect: Effect, *, flat: bool = False, **acts: Act) -> None:
        self.deeds += [Deed(name.replace("_", " "), effect, act, flat) for name, act in acts.items()]

    def close(self) -> None:
        """Ends what the engines have open."""


def split(path: str) -> tuple[str, str]:
    database, _, table = path.partition(".")
    return database, table


def duckdb_with(*extensions: str) -> Any:
    """DuckDB with extensions from the installed wheels; nothing is downloaded."""
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    for name in extensions:
        folder = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
        (file,) = folder.glob("extensions/*/*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


def select(place: str) -> str:
    """Of names and folders that the oracle itself made."""
    return " ".join(("SELECT * FROM", place))


def has_module(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def foreign_copies(rows: pa.Table, chance: Random) -> pa.Table:
    """A few rows of a table once more, under addresses that no log of ours reaches: as another engine inserts them."""
    first = chance.randrange(max(1, rows.num_rows))
    copies = rows.take(pa.array(range(first, min(rows.num_rows, first + chance.randint(1, 20))), pa.int64()))
    place = copies.schema.get_field_index("__offset")
    start = FAR + chance.randrange(10**9)
    return copies.set_column(
        place, copies.schema.field(place), pa.array(range(start, start + copies.num_rows), copies.schema.types[place])
    )


def some_keys(rows: pa.Table, column: str, chance: Random) -> list[Any]:
    """A third of the values of a column, at least one."""
    values = sorted(set(rows[column].to_pylist()))
    return chance.sample(values, max(1, len(values) // 3)) if values else []


def listed(values: Sequence[Any]) -> str:
    return ", ".join(repr(v) for v in values)
