# SPDX-License-Identifier: Apache-2.0
"""The two tables of a play, as a seed draws them: columns, keys, partitions, buckets, limits; and their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lakeward.client import Client
from lakeward.client.table import Table
from lakeward.errors import LakewardError
from lakeward.model import SideName
from lakeward_testing.oracle.columns import Alteration, PlayColumns
from lakeward_testing.oracle.engines.base import Engines, Target
from lakeward_testing.oracle.lab import SECOND
from lakeward_testing.oracle.truth import Expected, Key, Row, Truth
from lakeward_testing.oracle.values import TYPES, maybe

MOST_PARTITIONS, KEYS = 8, 60
ODD_TEXTS = ("", "__empty__", "null", "a,k:1", "a,z:1", "ü b/c", "x=1&y", "p0")
"""Values of a key column in a table without partitions."""

LIMITS = ("30 ms", "300 ms", "20 s")
"""How long a round may take: the first is too short for most, so that rounds end at every moment."""


@dataclass
class PlayTables:
    """`pk` and `log` are paths; `old` the handles of writers that opened the tables before columns were added."""

    client: Client
    chance: Random
    engines: Engines
    second: Engines | None
    name: str
    sides_chance: Random
    truth: Truth = field(default_factory=Truth)

    def __post_init__(self) -> None:
        chance = self.chance
        self.pk, self.log = f"oracle.{self.name}_state", f"oracle.{self.name}_events"
        self.paths = (self.pk, self.log)
        self.has_second, self.has_changelog = (self.sides_chance.random() < 0.5 for _ in range(2))
        self.has_second = self.has_second and self.second is not None
        self.lakes = [self.engines, *([self.second] if self.has_second and self.second is not None else [])]
        no_types = tuple(kind for engines in self.lakes for kind in engines.no_types)
        no_keys = {text for engines in self.lakes for text in engines.no_keys}
        types = [t for t in TYPES if not t.startswith(no_types)]
        drawn = chance.sample(types, chance.randint(6, 10))
        self.types = types
        self.drawn = drawn
        self.columns = {path: PlayColumns(drawn) for path in self.paths}
        self.partitioned = chance.random() < 0.5
        self.places = ["p0"] if self.partitioned else [text for text in ODD_TEXTS if text not in no_keys]
        self._next_row = 0
        self.old = {path: self._create(path) for path in self.paths}

    def _create(self, path: str) -> Table:
        is_pk, chance = path == self.pk, self.chance
        key = "k BIGINT NOT NULL" if is_pk else "r BIGINT NOT NULL"
        listed = ", ".join(f"{name} {kind}" for name, kind in self.columns[path].by_name.items())
        return self.client.create_table(
            path,
            f"p STRING NOT NULL, {key}, must INT NOT NULL, {listed}",
            primary_key="p,k" if is_pk else None,
            partition_by="p" if self.partitioned else None,
            buckets=chance.randint(1, 3),
            freshness=chance.choice(("500 ms", "1 s", "3 s")),
            properties={
                **self.engines.properties(chance),
                "table.datalake.max-round-duration": chance.choice(LIMITS),
                **({"table.datalake.lakes": f"default, {SECOND}"} if self.has_second else {}),
                **({"table.datalake.changelog": "default"} if self.has_changelog else {}),
            },
        )

    @property
    def sides(self) -> list[SideName]:
        names = ["default", *([SECOND] if self.has_second else []), *(["default:changelog"] * self.has_changelog)]
        return [SideName.parse(name) for name in names]

    def words(self) -> str:
        place = "partitioned" if self.partitioned else "no partitions"
        sides = f"{', a second lake' * self.has_second}{', a changelog' * self.has_changelog}"
        return f"{place}{sides}, {len(self.drawn)} columns: {', '.join(self.drawn)}"

    def target(self, path: str) -> Target:
        return Target(
            path=path,
            is_pk=path == self.pk,
            is_partitioned=self.partitioned,
            columns=self.columns[path].by_name,
        )

    def expected(self, path: str) -> Expected:
        rows = list(self.truth.state.values()) if path == self.pk else self.truth.events
        fixed = ("p", "k" if path == self.pk else "r", "must")
        return Expected(rows, [*fixed, *self.columns[path].names.values()], [*fixed, *self.columns[path].names])

    # ---- writes ----------------------------------------------------------------------------------------------------
    def write(self, chance: Random, *, by_old_handle: bool = False) -> None:
        if self.partitioned and chance.random() < 0.3 and len(self.places) < MOST_PARTITIONS:
            self.places.append(f"p{len(self.places)}")
        handles = self.old if by_old_handle else {path: self.client.table(path) for path in self.paths}
        for _ in range(chance.randint(1, 3)):
            if chance.random() < 1 / 3:
                self._delete(handles[self.pk], sorted({self._key(chance) for _ in range(chance.randint(1, 12))}))
            else:
                self._upsert(handles[self.pk], chance)
        self._append(handles[self.log], chance)

    def _upsert(self, table: Table, chance: Random) -> None:
        """Each key once for a call, only some of the columns now and then. An upsert whose answer was lost is repeated:
        it says the same."""
        keys = sorted({self._key(chance) for _ in range(_many(chance))})
        names = self._names(table, self.pk)
        columns = chance.sample(sorted(names), 2) if chance.random() < 0.25 else list(names)
        is_old = table is self.old[self.pk]
        rows = [self._row(chance, {"p": p, "k": k}, self.pk, columns, is_old=is_old) for p, k in keys]
        listed = ["p", "k", "must", *(names[column] for column in columns)]
        _until_done(lambda: table.upsert(_named(rows, names), listed))
        self.truth.upsert(rows)

    def _delete(self, table: Table, keys: Sequence[Key]) -> None:
        _until_done(lambda: table.delete([{"p": p, "k": k} for p, k in keys]))
        self.truth.delete(keys)

    def _append(self, table: Table, chance: Random) -> None:
        """An append whose answer was lost may be there in part: the table itself says which rows."""
        names = self._names(table, self.log)
        keys = [{"p": self._key(chance)[0], "r": self._number()} for _ in range(_many(chance))]
        is_old = table is self.old[self.log]
        rows = [self._row(chance, key, self.log, list(names), is_old=is_old) for key in keys]
        try:
            table.append(_named(rows, names))
        except LakewardError:
            present = _until_done(lambda: self.client.read(self.log, columns=["r"]).to_table())
            numbers = set(present["r"].to_pylist())
            rows = [row for row in rows if row["r"] in numbers]
        self.truth.append(rows)

    # ---- columns ---------------------------------------------------------------------------------------------------
    def draw_alteration(self, path: str, chance: Random, *, adds_only: bool) -> Alteration | None:
        return self.columns[path].draw(chance, self.types, adds_only=adds_only)

    def alter(self, path: str, change: Alteration) -> None:
        """By our own client. The answer of an earlier try may have been lost: the table says whether it was made."""
        _until_done(self._alter, path, change)
        self.columns[path].apply(change)

    def _alter(self, path: str, change: Alteration) -> None:
        if not self.is_altered(path, change):
            self.client.alter_table(path, **change.arguments)

    def is_altered(self, path: str, change: Alteration) -> bool:
        schema = self.client.show_table(path).schema
        return change.is_made({column.name: str(column.type) for column in schema.columns})

    # ---- parts -----------------------------------------------------------------------------------------------------
    def _names(self, table: Table, path: str) -> dict[str, str]:
        """Column -> its name in this handle's schema. An old handle has the first names."""
        names = {c: c for c in self.columns[path].first} if table is self.old[path] else self.columns[path].names
        return {column: name for column, name in names.items() if name in table.info.schema.names}

    def _row(self, chance: Random, key: Row, path: str, columns: Sequence[str], *, is_old: bool) -> Row:
        kinds = {**self.columns[path].kinds, **(self.columns[path].first if is_old else {})}
        values: dict[str, Any] = {c: maybe(TYPES[kinds[c]], chance) for c in columns}
        return {**key, "must": chance.randrange(1_000), **values}

    def _key(self, chance: Random) -> Key:
        """Few keys are most of the traffic, in one or two partitions of all; late rows come for old ones too."""
        skewed = chance.random() ** 3
        return self.places[-1 - int(len(self.places) * skewed)], int(KEYS * chance.random() ** 3)

    def _number(self) -> int:
        self._next_row += 1
        return self._next_row


def _named(rows: Iterable[Row], names: Mapping[str, str]) -> list[Row]:
    """As a writer calls the columns."""
    return [{names.get(column, column): value for column, value in row.items()} for row in rows]


def _many(chance: Random) -> int:
    return chance.choice((1, 2, 30, 30, 250))


def _until_done(act: Any, *arguments: Any, tries: int = 5) -> Any:
    """For what may be repeated: the server may have been killed between the deed and its answer."""
    for left in reversed(range(tries)):
        try:
            return act(*arguments)
        except LakewardError:
            if not left:
                raise
    return None
