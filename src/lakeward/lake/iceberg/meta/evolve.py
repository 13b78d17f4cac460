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
from lakeward.lake.iceberg.meta.mapping import LAKE_PREFIX, VERSION_KEY
from lakeward.lake.iceberg.meta.nested import NestedTypes, find_fields, past_fields, recorded_fields, spell_fields
from lakeward.lake.iceberg.meta.types import find_default, spell_type, to_iceberg_type, with_defaults
from lakeward.lake.iceberg.meta.version import VERSIONS
from lakeward.model import Column, TableInfo, refuse_type, type_node

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
    properties = spell_field_ids(plan.field_ids, after.schema.schema_id) | spell_fields(plan.nested_ids)
    if any(metadata.properties.get(k) != v for k, v in properties.items()):
        updates.append(SetPropertiesUpdate(updates=properties))
    return updates


def _may_widen(have: ice.IcebergType, due: ice.IcebergType) -> bool:
    if isinstance(have, ice.DecimalType) and isinstance(due, ice.DecimalType):
        return have.scale == due.scale and have.precision <= due.precision
    return (str(have), str(due)) in _WIDER


class _Plan:
    def __init__(self, before: TableInfo, after: TableInfo, metadata: TableMetadata) -> None:
        self._before, self._after, self._metadata = before, after, metadata
        self._now = {f.field_id: f for f in metadata.schema().fields}
        self.nested_ids = recorded_fields(metadata)
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
        recorded = self._now.get(self.field_ids.get(column.column_id, 0))
        is_this = recorded is not None and recorded.name == column.name and find_default(recorded) == column.default
        field = recorded if is_this else self._foreign.get(column.name)
        due = spell_type(to_iceberg_type(column.type, f"{self._after.path}.{column.name}"))
        if field is not None and spell_type(field.field_type) != due:
            diff = f"column {column.name}: expected {due}, found {spell_type(field.field_type)}"
            raise LakeMismatch(table=str(self._after.path), diff=diff)
        if field is not None and find_default(field) != column.default:
            diff = f"column {column.name}: expected default {column.default!r}, found {find_default(field)!r}"
            raise LakeMismatch(table=str(self._after.path), diff=diff)
        return None if field is None else field.field_id

    def _new_field(self, column: Column) -> ice.NestedField:
        if not column.type.nullable and column.default is None:
            raise self._wrong(f"add column {column.name}", "a new column is nullable, or has a default")
        if column.default is not None and self._metadata.format_version < max(VERSIONS):
            command = f"lakeward table alter {self._after.path} --set {LAKE_PREFIX}{VERSION_KEY}={max(VERSIONS)}"
            reason = f"its lake table has Iceberg's format version {self._metadata.format_version}, which has no "
            reason += f"defaults for older rows; `{command}` moves it to version {max(VERSIONS)}"
            raise self._wrong(f"add column {column.name} with a default", reason)
        field_id = next(self._new_ids)
        kind = to_iceberg_type(column.type, f"{self._after.path}.{column.name}", self._new_ids)
        self.field_ids[column.column_id] = field_id
        field = ice.NestedField(field_id, column.name, kind, required=not column.type.nullable, doc=column.comment)
        return field if column.default is None else with_defaults(field, column)

    def _wider(self, column: Column, have: ice.IcebergType) -> ice.IcebergType:
        due = to_iceberg_type(column.type, f"{self._after.path}.{column.name}")
        old = self._before.schema.by_id.get(column.column_id)
        if column.field_ids and old is not None and old.field_ids:
            return self._nested(old, column, have)
        if spell_type(due) == spell_type(have):
            return have  # with its own ids of nested fields
        if not _may_widen(have, due):
            raise refuse_type(self._before, column, spell_type(have))
        return due

    def _nested(self, old: Column, column: Column, have: ice.IcebergType) -> ice.IcebergType:
        """As it is where its fields never changed."""
        is_changed = (old.field_ids, old.type.sql) != (column.field_ids, column.type.sql)
        if not is_changed and column.column_id not in self.nested_ids:
            return have
        nested_ids = dict(self.nested_ids.get(column.column_id) or find_fields(old, have))
        types = NestedTypes(
            where=f"{self._after.path}.{column.name}",
            known=nested_ids,
            past=past_fields(self._metadata),
            new_ids=self._new_ids,
            old_fields=old.field_ids,
            may_widen=_may_widen,
        )
        try:
            kind = types.build(type_node(column), have)
        except ValueError as error:
            raise self._wrong(f"widen fields of column {column.name}", f"its lake cannot widen {error}") from error
        self.nested_ids[column.column_id] = nested_ids
        return kind

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
