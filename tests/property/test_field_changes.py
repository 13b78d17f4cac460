# SPDX-License-Identifier: Apache-2.0
"""Random changes of fields inside of columns while old and new writers put rows, against a model by field id."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.errors import InvalidAlter, LakeMismatch
from lakeward.model import (
    ArrayType,
    Column,
    FieldNode,
    MapType,
    RowType,
    TableInfo,
    TablePath,
    TypeNode,
    parse_type,
    to_arrow_schema,
    type_node,
)
from lakeward.protocol.tables import AlterTable
from lakeward_testing.faults import Faults
from tests.kit.inprocess import InProcessLakeward
from tests.property.schema_program import Crash
from tests.property.test_maintenance import iceberg_lake

COLUMNS = (
    "k INT NOT NULL, r ROW<x INT, y STRING, z ROW<p FLOAT, q STRING>>, "
    "l ARRAY<ROW<x INT, y STRING>>, m MAP<STRING, ROW<x INT, y STRING>>"
)
ROOTS = {"r": "", "l": "element.", "m": "value."}
WIDER = {"INT": "BIGINT", "FLOAT": "DOUBLE"}


class FieldProgram:
    """`rows`: for each key its values by field id, and how nested values are made of them."""

    def __init__(self, folder: Path, seed: int, *, is_pk: bool) -> None:
        self.random = random.Random(seed)
        self.world = InProcessLakeward(folder, iceberg_lake(folder))
        self.path, key = "db.t", "k" if is_pk else ""
        self.schemas = [self.world.create(self.path, COLUMNS, primary_key=key)]
        self.rows: dict[int, dict[str, Any]] = {}
        self._names = (f"f{n}" for n in range(10**6))

    def run(self, steps: int) -> None:
        acts = [self.put, self.put, self.alter, self.alter, self.crash, self.tier, self.compact]
        for _ in range(steps):
            self.random.choice(acts)()
            self.check("union")
        self.tier()
        self.check("lake")

    @property
    def now(self) -> TableInfo:
        return self.schemas[-1]

    def put(self) -> None:
        table = self.random.choice([self.now, *self.schemas])
        key = len(self.rows)
        values: dict[str, Any] = {name: self._value(type_node(table.schema.column(name))) for name in ROOTS}
        spelled = {n: _spelled(v, type_node(table.schema.column(n))) for n, v in values.items()}
        rows = pa.Table.from_pylist([{"k": key, **spelled}], schema=to_arrow_schema(table.schema))
        put = self.world.store.upsert if table.is_pk else self.world.store.append
        self.world.put_rows(table, rows, put)
        self.rows[key] = values

    def _value(self, node: TypeNode) -> Any:
        """A struct as a dict by field id."""
        if self.random.random() < 0.15 and node.kind.nullable:
            return None
        match node.kind:
            case RowType():
                return {part.field_id: self._value(part.node) for part in node.parts}
            case ArrayType():
                return [self._value(node.parts[0].node) for _ in range(self.random.randint(0, 3))]
            case MapType():
                return {f"k{n}": self._value(node.parts[1].node) for n in range(self.random.randint(0, 2))}
        number = self.random.randint(-9, 9)
        return {"STRING": f"s{number}", "FLOAT": number / 4, "DOUBLE": number / 4}.get(node.kind.keyword, number)

    def tier(self) -> None:
        self.world.tier(self.path)
        self.check("lake")

    def compact(self) -> None:
        self.tier()
        if self.rows:
            self.world.compact(self.path)

    def alter(self) -> None:
        self._land(self._change())

    def crash(self) -> None:
        change = self._change()
        with Faults() as faults:
            faults.arm("alter.between-lake-and-hot", error=Crash)
            with suppress(Crash, InvalidAlter, LakeMismatch):
                self.world.federation.alter(TablePath.parse(self.path), change)
        self.put()
        if self.random.random() < 0.5:
            self.tier()
        self.check("union")
        self._land(change if self.random.random() < 0.5 else self._change())

    def _land(self, change: AlterTable) -> None:
        with suppress(InvalidAlter, LakeMismatch):
            self.schemas.append(self.world.federation.alter(TablePath.parse(self.path), change).table)

    def _change(self) -> AlterTable:
        column = self.random.choice(list(ROOTS))
        node, path = type_node(self.now.schema.column(column)), f"{column}.{ROOTS[column]}"
        struct = node if column == "r" else node.parts[-1].node
        inner = next((p for p in struct.parts if p.node.parts), None)
        if inner is not None and self.random.random() < 0.4:
            struct, path = inner.node, f"{path}{inner.name}."
        part: FieldNode = self.random.choice(struct.parts)
        added = Column(name=path + next(self._names), type=parse_type(self.random.choice(["INT", "STRING", "FLOAT"])))
        match self.random.randint(0, 5):
            case 0:
                return AlterTable(rename_columns={path + part.name: next(self._names)})
            case 1 if len(struct.parts) > 1:
                taken = Column(name=path + part.name, type=added.type)
                return AlterTable(
                    drop_columns=(path + part.name,), add_columns=self.random.choice([(), (taken.to_json(),)])
                )
            case 2 if part.node.kind.sql in WIDER:
                return AlterTable(widen_columns={path + part.name: WIDER[part.node.kind.sql]})
            case 3:
                return AlterTable(after={path + part.name: ""})
            case 4:
                return AlterTable(column_comments={path + part.name: "text"})
        return AlterTable(add_columns=(added.to_json(),))

    def check(self, mode: str) -> None:
        shown = {row["k"]: row for row in self.world.read(self.path, mode=mode).to_table().to_pylist()}
        schema = self.now.schema
        expected = {
            key: {"k": key, **{n: _spelled(values[n], type_node(schema.column(n))) for n in ROOTS}}
            for key, values in self.rows.items()
        }
        assert shown == expected, schema


def _spelled(value: Any, node: TypeNode) -> Any:
    """By the names of a schema, as Arrow gives it: fields that a row lacks are null."""
    if value is None:
        return None
    match node.kind:
        case RowType():
            return {part.name: _spelled(value.get(part.field_id), part.node) for part in node.parts}
        case ArrayType():
            return [_spelled(v, node.parts[0].node) for v in value]
        case MapType():
            return [(k, _spelled(v, node.parts[1].node)) for k, v in value.items()]
    return value


@pytest.mark.parametrize("is_pk", [False, True])
@settings(max_examples=4)
@given(st.integers(0, 2**32))
def test_fields_change_while_rows_come(is_pk: bool, seed: int) -> None:
    run(seed, is_pk=is_pk, steps=12)


@pytest.mark.soak
@pytest.mark.parametrize("is_pk", [False, True])
@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_long_programs_of_field_changes(is_pk: bool, seed: int) -> None:
    run(seed, is_pk=is_pk, steps=40)


def run(seed: int, *, is_pk: bool, steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = FieldProgram(Path(folder), seed, is_pk=is_pk)
        try:
            program.run(steps)
        finally:
            program.world.close()
