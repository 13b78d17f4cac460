# SPDX-License-Identifier: Apache-2.0
"""The two tables of a play, as a seed draws them: columns, keys, partitions, buckets, limits; and their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lakeward.client import Client
from lakeward.client.table import Table
from lakeward.errors import LakewardError
from lakeward_testing.oracle.engines.base import Engines, Target
from lakeward_testing.oracle.truth import Expected, Key, Row, Truth
from lakeward_testing.oracle.values import TYPES, maybe

MOST_ADDED, MOST_PARTITIONS, KEYS = 3, 8, 60
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
    name: str
    truth: Truth = field(default_factory=Truth)

    def __post_init__(self) -> None:
        chance = self.chance
        self.pk, self.log = f"oracle.{self.name}_state", f"oracle.{self.name}_events"
        self.paths = (self.pk, self.log)
        types = [t for t in TYPES if not t.startswith(tuple(self.engines.no_types))]
        drawn = chance.sample(types, chance.randint(6, 10))
        self.types = types
        self.columns = {f"c{n}": kind for n, kind in enumerate(drawn)}
        self.partitioned = chance.random() < 0.5
        self.places = ["p0"] if self.partitioned else [text for text in ODD_TEXTS if text not in self.engines.no_keys]
        self._next_row = 0
        self.old = {path: self._create(path) for path in self.paths}

    def _create(self, path: str) -> Table:
        is_pk, chance = path == self.pk, self.chance
        key = "k BIGINT NOT NULL" if is_pk else "r BIGINT NOT NULL"
        listed = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        return self.client.create_table(
            path,
            f"p STRING NOT NULL, {key}, must INT NOT NULL, {listed}",
            primary_key="p,k" if is_pk else None,
            partition_by="p" if self.partitioned else None,
            buckets=chance.randint(1, 3),
            freshness=chance.choice(("500 ms", "1 s", "3 s")),
            properties={**self.engines.properties(chance), "table.datalake.max-round-duration": chance.choice(LIMITS)},
        )

    def words(self) -> str:
        place = "partitioned" if self.partitioned else "no partitions"
        return f"{place}, {len(self.columns)} columns: {', '.join(self.columns.values())}"

    def target(self, path: str) -> Target:
        return Target(
            path=path,
            is_pk=path == self.pk,
            is_partitioned=self.partitioned,
            column="c0",
            types=tuple(self.columns.values()),
        )

    def expected(self, path: str) -> Expected:
        rows = list(self.truth.state.values()) if path == self.pk else self.truth.events
        return Expected(rows, ["p", "k" if path == self.pk else "r", "must", *self.columns])

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
        known = self._known(table)
        names = chance.sample(known, 2) if chance.random() < 0.25 else known
        rows = [self._row(chance, {"p": p, "k": k}, names) for p, k in keys]
        _until_done(lambda: table.upsert(rows, ["p", "k", "must", *names]))
        self.truth.upsert(rows)

    def _delete(self, table: Table, keys: Sequence[Key]) -> None:
        _until_done(lambda: table.delete([{"p": p, "k": k} for p, k in keys]))
        self.truth.delete(keys)

    def _append(self, table: Table, chance: Random) -> None:
        """An append whose answer was lost may be there in part: the table itself says which rows."""
        known = self._known(table)
        rows = [
            self._row(chance, {"p": self._key(chance)[0], "r": self._number()}, known) for _ in range(_many(chance))
        ]
        try:
            table.append(rows)
        except LakewardError:
            present = _until_done(lambda: self.client.read(self.log, columns=["r"]).to_table())
            numbers = set(present["r"].to_pylist())
            rows = [row for row in rows if row["r"] in numbers]
        self.truth.append(rows)

    def add_column(self, chance: Random) -> None:
        if len(self.columns) < 10 + MOST_ADDED:
            name, kind = f"c{len(self.columns)}", chance.choice(self.types)
            for path in self.paths:
                _until_done(self._add, path, name, kind)
            self.columns[name] = kind

    def _add(self, path: str, name: str, kind: str) -> object:
        """The answer of an earlier try may have been lost."""
        if name in self.client.show_table(path).schema.names:
            return None
        return self.client.alter_table(path, add_columns=f"{name} {kind}")

    # ---- parts -----------------------------------------------------------------------------------------------------
    def _known(self, table: Table) -> list[str]:
        return [name for name in table.info.schema.names if name in self.columns]

    def _row(self, chance: Random, key: Row, names: Sequence[str]) -> Row:
        values: dict[str, Any] = {name: maybe(TYPES[self.columns[name]], chance) for name in names}
        return {**key, "must": chance.randrange(1_000), **values}

    def _key(self, chance: Random) -> Key:
        """Few keys are most of the traffic, in one or two partitions of all; late rows come for old ones too."""
        skewed = chance.random() ** 3
        return self.places[-1 - int(len(self.places) * skewed)], int(KEYS * chance.random() ** 3)

    def _number(self) -> int:
        self._next_row += 1
        return self._next_row


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
