# SPDX-License-Identifier: Apache-2.0
"""Random programs over tables whose columns change, beside a model that keeps values by column id."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidAlter, LakeMismatch
from lakeward.model import Column, ColumnChange, TableInfo, TablePath, default_value, parse_type, to_arrow_type
from lakeward.protocol.heartbeat import TableFinished
from lakeward.protocol.tables import AlterTable
from lakeward.spi import LakeStorage
from lakeward_testing.faults import Faults
from tests.kit.inprocess import InProcessLakeward

LOG, PK = "db.events", "db.state"
KINDS = ("INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(6, 2)", "STRING", "DATE")
WIDER = {"INT": "BIGINT", "FLOAT": "DOUBLE", "DECIMAL(6, 2)": "DECIMAL(9, 2)", "DATE": "TIMESTAMP(3)"}
CRASHES = ("alter.between-lake-and-hot", "alter.before-finish")
DEFAULTS = {"STRING": "none", "DATE": "2024-02-29"}
KEY_ID = 1


class Crash(Exception):
    """The server dies between the lake and the hot store."""


@dataclass
class Model:
    """What a table must show: rows by column id. `schemas`: every life of the table that a writer may still have."""

    schemas: list[TableInfo]
    rows: list[dict[int, Any]] = field(default_factory=list)
    by_key: dict[int, dict[int, Any]] = field(default_factory=dict)

    @property
    def now(self) -> TableInfo:
        return self.schemas[-1]

    def append(self, sent: Sequence[Mapping[int, Any]]) -> None:
        self.rows += [dict(row) for row in sent]

    def upsert(self, sent: Sequence[Mapping[int, Any]]) -> None:
        for row in sent:
            self.by_key.setdefault(row[KEY_ID], {}).update({i: v for i, v in row.items() if i in self.now.schema.by_id})

    def change_to(self, after: TableInfo) -> None:
        dropped = self.now.schema.by_id.keys() - after.schema.by_id.keys()
        self.schemas.append(after)
        for row in (*self.rows, *self.by_key.values()):
            for column_id in dropped:
                row.pop(column_id, None)

    def shown(self) -> Counter[tuple[Any, ...]]:
        rows = self.by_key.values() if self.now.is_pk else self.rows
        return Counter(tuple(_as_now(row, c) for c in self.now.schema.columns) for row in rows)


def _as_now(row: Mapping[int, Any], column: Column) -> Any:
    """The default of a column that the row does not have; a date of a column that is a timestamp by now."""
    if column.column_id not in row and column.default is not None:
        return default_value(column.default, column.type)
    value: Any = row.get(column.column_id)
    is_wider = column.type.keyword == "TIMESTAMP" and value is not None and not isinstance(value, datetime)
    return datetime.combine(value, time()) if is_wider else value


class SchemaProgram:
    def __init__(self, folder: Path, lake: LakeStorage, seed: int, changes: frozenset[ColumnChange]) -> None:
        self.random, self.changes = random.Random(seed), changes
        self.world = InProcessLakeward(folder, lake)
        self.models = {
            LOG: Model([self._create(LOG, "")]),
            PK: Model([self._create(PK, "k")]),
        }
        self._names = (f"c{n}" for n in range(10**6))
        self.trace: list[str] = []

    def _create(self, path: str, key: str) -> TableInfo:
        """Of Iceberg, version 3 alone has defaults."""
        is_iceberg = self.world.lake.name == "iceberg"
        properties: dict[str, Any] = {"iceberg.format-version": self.random.choice("23")} if is_iceberg else {}
        columns, buckets = "k INT NOT NULL, a INT, b STRING", 2 if key else 1
        return self.world.create(path, columns, primary_key=key, buckets=buckets, **properties)

    def run(self, steps: int) -> None:
        acts = [self.put, self.put, self.delete, self.alter, self.alter, self.tier, self.compact, self.crash]
        for _ in range(steps):
            path = self.random.choice([LOG, PK])
            act = self.random.choice(acts)
            self.trace.append(f"{act.__name__} {path}")
            act(path)
            self.check(path)
            self.check_changes(path)
        for path in self.models:
            self.tier(path)
            self.check(path, "lake")

    # ---- steps ---------------------------------------------------------------------------------------------------
    def put(self, path: str) -> None:
        """By a writer that has any schema that the table ever had."""
        model = self.models[path]
        table = self.random.choice([model.now, *model.schemas])
        sent = [{c.column_id: self._value(c) for c in table.schema.columns} for _ in range(self.random.randint(1, 4))]
        columns = table.schema.columns
        arrays = [pa.array([row[c.column_id] for row in sent], to_arrow_type(c.type)) for c in columns]
        rows = pa.table(arrays, table.schema.names)
        if model.now.is_pk:
            self.world.put_rows(table, rows, self.world.store.upsert)
            model.upsert(sent)
        else:
            self.world.put_rows(table, rows, self.world.store.append)
            model.append(sent)

    def delete(self, path: str) -> None:
        model = self.models[path]
        if not model.now.is_pk:
            return
        table = self.random.choice(model.schemas)
        keys = [self.random.randint(0, 5) for _ in range(2)]
        name = table.descriptor.primary_key[0]
        self.world.put_rows(table, pa.table({name: pa.array(keys, pa.int32())}), self.world.store.delete)
        for key in keys:
            model.by_key.pop(key, None)

    def tier(self, path: str) -> None:
        ends = self.world.tier(path)
        assert all(isinstance(end, TableFinished) for end in ends), ends
        self.check(path, "lake")

    def compact(self, path: str) -> None:
        self.tier(path)
        if not self.models[path].shown():
            return
        end = self.world.compact(path)
        assert isinstance(end, TableFinished), end

    def alter(self, path: str) -> None:
        self._land(path, self._change(path))

    def crash(self, path: str) -> None:
        """Between lake and hot store, or after both; rounds, reads and writers go on. Then the same call again, or
        another."""
        change = self._change(path)
        with Faults() as faults:
            faults.arm(self.random.choice(CRASHES), error=Crash)
            with suppress(Crash, InvalidAlter, LakeMismatch):
                self.world.federation.alter(TablePath.parse(path), change)
        stored = self.world.store.load_table(TablePath.parse(path))
        if stored != self.models[path].now:
            self.models[path].change_to(stored)
            change = self._change(path)
        if self.random.random() < 0.3:
            self.world.restart()
            self.world.coordinator.lakes.read_unseen()
        self.check(path)
        self.put(path)
        if self.random.random() < 0.5:
            self.tier(path)
        self.check(path)
        self._land(path, change if self.random.random() < 0.5 else self._change(path))

    def _land(self, path: str, change: AlterTable) -> None:
        try:
            after = self.world.federation.alter(TablePath.parse(path), change).table
        except (InvalidAlter, LakeMismatch) as error:
            self.trace.append(f"refused: {error}")
            assert self.world.store.load_table(TablePath.parse(path)) == self.models[path].now
            return
        self.trace.append(f"{change} -> {[(c.column_id, c.name, c.type.sql) for c in after.schema.columns]}")
        self.models[path].change_to(after)

    def _change(self, path: str) -> AlterTable:
        schema = self.models[path].now.schema
        others = [c.name for c in schema.columns if c.column_id != KEY_ID]
        any_name = self.random.choice(schema.names)
        kind = self.random.choice(sorted(self.changes))
        match kind:
            case ColumnChange.RENAME if len(others) > 1 and self.random.random() < 0.3:
                one, other = self.random.sample(others, 2)
                return AlterTable(rename_columns={one: other, other: one})
            case ColumnChange.RENAME:
                return AlterTable(rename_columns={any_name: next(self._names)})
            case ColumnChange.DROP if others:
                name = self.random.choice(others)
                return AlterTable(drop_columns=(name,), add_columns=self._added(self.random.choice([name, None])))
            case ColumnChange.MOVE:
                return AlterTable(after={any_name: self.random.choice(["", *(set(schema.names) - {any_name})])})
            case ColumnChange.WIDEN if any(schema.column(n).type.sql in WIDER for n in others):
                chosen = self.random.choice([n for n in others if schema.column(n).type.sql in WIDER])
                return AlterTable(widen_columns={chosen: WIDER[schema.column(chosen).type.sql]})
            case ColumnChange.COMMENT:
                return AlterTable(column_comments={any_name: self.random.choice([None, "text", "other"])})
            case ColumnChange.ADD_BETWEEN:
                added = self._added(None)
                return AlterTable(add_columns=added, after={added[0]["name"]: self.random.choice(["", any_name])})
        return AlterTable(add_columns=self._added(None))

    def _added(self, name: str | None) -> tuple[dict[str, Any], ...]:
        kind = parse_type(self.random.choice(KINDS))
        default = None
        if ColumnChange.DEFAULT in self.changes and self.random.random() < 0.4:
            default = str(self._value(Column(name="default", type=kind)) or DEFAULTS.get(kind.keyword, "0"))
            kind = kind.with_nullable(self.random.random() < 0.5)
        return (Column(name=name or next(self._names), type=kind, default=default).to_json(),)

    def _value(self, column: Column) -> Any:
        if column.column_id == KEY_ID:
            return self.random.randint(0, 5)
        if column.type.nullable and self.random.random() < 0.2:
            return None
        number = self.random.randint(-9, 9)
        match column.type.keyword:
            case "STRING":
                return f"s{number}"
            case "FLOAT" | "DOUBLE":
                return number / 4
            case "DECIMAL":
                return pa.scalar(f"{number}.25").cast(pa.decimal128(9, 2)).as_py()
            case "BIGINT":
                return number * 2**33
            case "DATE":
                return date(2024, 2, 20) + timedelta(number)
            case "TIMESTAMP":
                return datetime(2024, 2, 20, 5) + timedelta(number)
        return number

    # ---- checks --------------------------------------------------------------------------------------------------
    def check(self, path: str, mode: str = "union") -> None:
        model = self.models[path]
        result = self.world.read(path, mode=mode).to_table()
        assert tuple(result.column_names) == model.now.schema.names, self.trace
        shown = Counter(tuple(row.values()) for row in result.to_pylist())
        assert shown == model.shown(), "\n".join([*self.trace, f"{shown - model.shown()} {model.shown() - shown}"])
        self._check_filter(path, mode, shown)

    def _check_filter(self, path: str, mode: str, shown: Counter[tuple[Any, ...]]) -> None:
        """By a value of one row: bounds that files had before a change do not hide it."""
        names = self.models[path].now.schema.names
        if not shown:
            return
        at, row = self.random.randrange(len(names)), self.random.choice(sorted(shown, key=str))
        if row[at] is None:
            return
        rows = self.world.read(path, mode=mode, filter=[(names[at], "=", row[at])]).to_table().to_pylist()
        expected = Counter({r: count for r, count in shown.items() if r[at] == row[at]})
        assert Counter(tuple(r.values()) for r in rows) == expected, "\n".join(
            [*self.trace, f"{names[at]} = {row[at]}"]
        )

    def check_changes(self, path: str) -> None:
        """The changelog, in today's names: every row that a change replaces or deletes is the one before it, and the
        last ones are the table."""
        model = self.models[path]
        names, live = model.now.schema.names, Counter[tuple[Any, ...]]()
        for change in self.world.changes(path).to_table().to_pylist():
            row = tuple(change[name] for name in names)
            live[row] += -1 if change["__change_type"] in ("update_before", "delete") else 1
            assert live[row] >= 0, "\n".join([*self.trace, f"{change} replaces a row that is not there"])
        assert +live == model.shown(), "\n".join([*self.trace, f"{live - model.shown()} {model.shown() - live}"])
