# SPDX-License-Identifier: Apache-2.0
"""Changes a lake table's columns to those of a schema of its table: by field ids, in one commit. Pure.

The argument is a schema, not a change: the same call after a crash, or another one in its place, has the same result. A
column that comes back has the field id of its values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from pyiceberg import types as ice
from pyiceberg.schema import Schema as LakeSchema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, SetPropertiesUpdate, TableUpdate

from lakeward.errors import InvalidAlter, LakeMismatch
from lakeward.lake.core.columns import SYSTEM
from lakeward.lake.iceberg.meta.columnids import find_field_ids, find_past_field, recorded_ids, spell_field_ids
from lakeward.lake.iceberg.meta.types import spell_type, to_iceberg_type
from lakeward.model import Column, TableInfo, refuse_type

_WIDER = {("int", "long"), ("float", "double")}


def plan_evolution(before: TableInfo, after: TableInfo, metadata: TableMetadata) -> list[TableUpdate]:
    """Plans the updates from the lake table of `before` to that of `after`; none if it has these columns. Raises
    `InvalidAlter` for changes that the lake table does not support, `UnsupportedType`."""
    plan = _Plan(before, after, metadata)
    schema = plan.schema()
    updates: list[TableUpdate] = []
    if schema != metadata.schema() or schema.identifier_field_ids != metadata.schema().identifier_field_ids:
        plan.check_dropped(schema)
        updates += [AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})]
    properties = spell_field_ids(plan.field_ids, after.schema.schema_id)
    if any(metadata.properties.get(k) != v for k, v in properties.items()):
        updates.append(SetPropertiesUpdate(updates=properties))
    return updates


class _Plan:
    def __init__(self, before: TableInfo, after: TableInfo, metadata: TableMetadata) -> None:
        self._before, self._after, self._metadata = before, after, metadata
        self._now = {f.field_id: f for f in metadata.schema().fields}
        self.field_ids = {**recorded_ids(metadata), **find_field_ids(metadata, before.schema)}
        taken = set(self.field_ids.values())
        self._foreign = {f.name: f for f in self._now.values() if f.field_id not in taken and f.name not in SYSTEM}
        self._new_ids = itertools.count(metadata.last_column_id + 1)

    def schema(self) -> LakeSchema:
        ours = [self._field(column) for column in self._after.schema.columns]
        foreign = [f for f in self._foreign.values() if f.field_id not in {o.field_id for o in ours}]
        system = [f for f in self._now.values() if f.name in SYSTEM]
        self._check_names(ours, foreign)
        by_name = {f.name: f.field_id for f in ours}
        return LakeSchema(
            *ours,
            *foreign,
            *system,
            schema_id=max(s.schema_id for s in self._metadata.schemas) + 1,
            identifier_field_ids=[by_name[n] for n in self._after.descriptor.primary_key],
        )

    def _field(self, column: Column) -> ice.NestedField:
        """Returns the field of this column, in its new form."""
        is_new = column.column_id not in self._before.schema.by_id
        field_id = self._find_added(column) if is_new else self.field_ids.get(column.column_id)
        field = None if field_id is None else find_past_field(self._metadata, field_id)
        if field is None:
            return self._new_field(column)
        self.field_ids[column.column_id] = field.field_id
        old = self._before.schema.by_id.get(column.column_id)
        changed: dict[str, Any] = {
            "name": column.name,
            "field_type": self._wider(column, field.field_type),
            "required": field.required and not column.type.nullable and field.field_id in self._now,
        }
        if old is None or old.comment != column.comment:
            changed["doc"] = column.comment
        return field.model_copy(update=changed)

    def _find_added(self, column: Column) -> int | None:
        """Finds an existing field: added by another engine, or by an ALTER that did not finish. A field that such an
        ALTER created for this id with another name is another column, and is dropped. Raises `LakeMismatch`."""
        left = self._now.get(self.field_ids.get(column.column_id, 0))
        field = left if left is not None and left.name == column.name else self._foreign.get(column.name)
        due = spell_type(to_iceberg_type(column.type, f"{self._after.path}.{column.name}"))
        if field is not None and spell_type(field.field_type) != due:
            diff = f"column {column.name}: expected {due}, found {spell_type(field.field_type)}"
            raise LakeMismatch(table=str(self._after.path), diff=diff)
        return None if field is None else field.field_id

    def _new_field(self, column: Column) -> ice.NestedField:
        if not column.type.nullable:
            raise self._wrong(f"add column {column.name}", "a new column is nullable")
        field_id = next(self._new_ids)
        kind = to_iceberg_type(column.type, f"{self._after.path}.{column.name}", self._new_ids)
        self.field_ids[column.column_id] = field_id
        return ice.NestedField(field_id, column.name, kind, required=False, doc=column.comment)

    def _wider(self, column: Column, have: ice.IcebergType) -> ice.IcebergType:
        due = to_iceberg_type(column.type, f"{self._after.path}.{column.name}")
        if spell_type(due) == spell_type(have):
            return have  # with its own ids of nested fields
        fits = (str(have), str(due)) in _WIDER
        if isinstance(have, ice.DecimalType) and isinstance(due, ice.DecimalType):
            fits = have.scale == due.scale and have.precision <= due.precision
        if not fits:
            raise refuse_type(self._before, column, spell_type(have))
        return due

    def _check_names(self, ours: list[ice.NestedField], foreign: list[ice.NestedField]) -> None:
        names = {f.name: f.field_id for f in ours}
        for field in foreign:
            if field.name in names:
                reason = "the lake table has another column of that name, which another engine added; rename it there"
                raise self._wrong(f"name column {field.name}", reason)
        for spec in self._metadata.partition_specs:
            for part in spec.fields:
                if names.get(part.name, part.source_id) != part.source_id:
                    reason = f"the lake table has a partition field {part.name} of another column"
                    raise self._wrong(f"name column {part.name}", reason)

    def check_dropped(self, schema: LakeSchema) -> None:
        """Checks partitioning and sort orders, which refer to columns by id: those columns stay."""
        gone = self._now.keys() - {f.field_id for f in schema.fields}
        for used, what in self._used():
            if used in gone:
                reason = f"the lake table {what} it; change that there first"
                raise self._wrong(f"drop column {self._now[used].name}", reason)

    def _used(self) -> Iterator[tuple[int, str]]:
        yield from ((f.source_id, "is or was partitioned by") for s in self._metadata.partition_specs for f in s.fields)
        yield from ((f.source_id, "is sorted by") for f in self._metadata.sort_order().fields)

    def _wrong(self, change: str, reason: str) -> InvalidAlter:
        return InvalidAlter(table=str(self._after.path), change=change, reason=reason)
