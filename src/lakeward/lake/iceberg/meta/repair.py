# SPDX-License-Identifier: Apache-2.0
"""Plans the repair of a lake table's columns or partitioning after other engines changed them, so that rounds can write
again. Columns keep the field ids of their values. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, SetDefaultSpecUpdate, TableUpdate

from lakeward.lake.iceberg.meta.columnids import find_past_field, recorded_ids
from lakeward.lake.iceberg.meta.diff import spell_spec
from lakeward.lake.iceberg.meta.mapping import lake_schema, lake_spec
from lakeward.lake.iceberg.meta.types import spell_type
from lakeward.model import BUCKET, TableDescriptor


@dataclass(frozen=True, kw_only=True)
class SchemaRepair:
    """A repair. `changes`: descriptions, empty if there is nothing to do. `refused`: changes that cannot be undone.
    `not_null`: columns that become NOT NULL again, if no row has a null there. `relaxed`: the schema without those
    constraints."""

    changes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    updates: tuple[TableUpdate, ...] = ()
    relaxed: tuple[TableUpdate, ...] = ()
    not_null: tuple[str, ...] = ()


def plan_repair(descriptor: TableDescriptor, metadata: TableMetadata) -> SchemaRepair:
    plan = _Plan(descriptor, metadata)
    fields = list(plan.fields())
    by_name = {f.name: f.field_id for f in fields}
    keys = sorted(by_name[n] for n in descriptor.primary_key if n in by_name)
    if not plan.refused and keys != sorted(metadata.schema().identifier_field_ids):
        plan.changes.append(f"identifier fields: {', '.join(descriptor.primary_key) or 'none'} again")
    schema = Schema(*fields, schema_id=plan.schema_id, identifier_field_ids=keys)
    optional = [f.model_copy(update={"required": f.required and f.name not in plan.not_null}) for f in fields]
    relaxed = Schema(*optional, schema_id=plan.schema_id)
    spec = [] if plan.refused else list(plan.spec(schema))
    columns = [] if schema == metadata.schema() else _updates(schema)
    return SchemaRepair(
        changes=tuple(plan.changes),
        refused=tuple(plan.refused),
        updates=(*columns, *spec),
        relaxed=tuple(_updates(relaxed)),
        not_null=tuple(plan.not_null),
    )


def _updates(schema: Schema) -> list[TableUpdate]:
    return [AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})]


class _Plan:
    def __init__(self, descriptor: TableDescriptor, metadata: TableMetadata) -> None:
        self._descriptor, self._metadata = descriptor, metadata
        self._wanted = {f.name: f for f in lake_schema(descriptor).fields}
        self._now = {f.field_id: f for f in metadata.schema().fields}
        recorded = recorded_ids(metadata)
        self._recorded = {c.name: recorded[c.column_id] for c in descriptor.schema.columns if c.column_id in recorded}
        self._others = set(recorded.values())
        self._next_id = metadata.last_column_id + 1
        self.schema_id = max(s.schema_id for s in metadata.schemas) + 1
        self.changes: list[str] = []
        self.refused: list[str] = []
        self.not_null: list[str] = []

    def fields(self) -> Iterator[ice.NestedField]:
        """Returns columns in the lake's order; restored columns come before the system columns."""
        ours = {name: self._find(name) for name in self._wanted}
        by_id = {f.field_id: name for name, f in ours.items() if f is not None}
        back = [self._take(n, f) for n, f in ours.items() if f is None or f.field_id not in self._now]
        for field in self._now.values():
            name = by_id.get(field.field_id)
            if name == BUCKET:
                yield from back
            yield self._loosen(field) if name is None else self._take(name, field)
        if not any(by_id.get(i) == BUCKET for i in self._now):
            yield from back

    def _find(self, name: str) -> ice.NestedField | None:
        """Returns the field of this column: in the current schema, or in the newest that had it."""
        if name in self._recorded:
            return find_past_field(self._metadata, self._recorded[name])
        newest_first = sorted(self._metadata.schemas, key=lambda s: -s.schema_id)
        for schema in (self._metadata.schema(), *newest_first):
            for field in schema.fields:
                if field.name == name and field.field_id not in self._others:
                    return self._now.get(field.field_id, field)
        return None

    def _take(self, name: str, field: ice.NestedField | None) -> ice.NestedField:
        expected = self._wanted[name]
        if field is None:
            self.changes.append(f"column {name}: added")
            field = expected.model_copy(update={"field_id": self._next_id, "required": False})
            self._next_id += 1
            if isinstance(field.field_type, ice.ListType | ice.MapType | ice.StructType):
                self.refused.append(f"column {name}: no schema of the lake table ever had it")
        elif spell_type(field.field_type) != spell_type(expected.field_type):
            have, want = spell_type(field.field_type), spell_type(expected.field_type)
            self.refused.append(f"column {name}: it is {have} there and {want} here, and no type goes back")
        elif field.field_id not in self._now:
            self.changes.append(f"column {name}: back, with the values that its files hold")
        elif field.name != name:
            self.changes.append(f"column {name}: no longer named {field.name}")
        return self._with_nulls(name, field)

    def _with_nulls(self, name: str, field: ice.NestedField) -> ice.NestedField:
        required = self._wanted[name].required
        if required and (field.field_id not in self._now or not field.required):
            self.not_null.append(name)
            self.changes.append(f"column {name}: NOT NULL again")
        elif field.required and not required:
            self.changes.append(f"column {name}: nullable again")
        return field.model_copy(update={"name": name, "required": required})

    def _loosen(self, field: ice.NestedField) -> ice.NestedField:
        if field.required:
            self.changes.append(f"column {field.name}, which is not ours: nullable")
        return field.model_copy(update={"required": False})

    def spec(self, schema: Schema) -> Iterator[TableUpdate]:
        ours = lake_schema(self._descriptor)
        expected = spell_spec(lake_spec(self._descriptor, ours), ours)
        if spell_spec(self._metadata.spec(), schema) == expected:
            return
        fitting = [s.spec_id for s in self._metadata.partition_specs if spell_spec(s, schema) == expected]
        if fitting:
            self.changes.append(f"partitioning: {expected} again")
            yield SetDefaultSpecUpdate.model_validate({"spec-id": fitting[0]})
        else:
            self.refused.append(f"partitioning: the lake table has no {expected} any more")
