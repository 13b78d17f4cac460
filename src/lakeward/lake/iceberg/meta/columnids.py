# SPDX-License-Identifier: Apache-2.0
"""Maps columns to Iceberg fields: a property of the lake table maps column ids to field ids.

A table that never changed its columns has no such property: for it, and for columns not in the property, names decide.
A second property records for which schema of the table the lake's columns were made: while an ALTER is under way,
rounds and reads that were planned with an older schema see the lake table as that schema had it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyiceberg import types as ice
from pyiceberg.schema import Schema as LakeSchema
from pyiceberg.table.metadata import TableMetadata

from lakeward.lake.iceberg.meta.nested import NestedTypes, past_fields, recorded_fields
from lakeward.lake.iceberg.meta.types import spell_type, to_iceberg_type
from lakeward.model import Schema, type_node

COLUMN_IDS = "lakeward.column-ids"
SCHEMA_ID = "lakeward.schema-id"


def recorded_ids(metadata: TableMetadata) -> dict[int, int]:
    """Column id -> field id in the property, dropped columns included."""
    return {int(c): int(f) for c, f in json.loads(metadata.properties.get(COLUMN_IDS, "{}")).items()}


def find_field_ids(metadata: TableMetadata, schema: Schema) -> dict[int, int]:
    """Column id -> field id, for columns that the lake table has."""
    recorded, fields = recorded_ids(metadata), metadata.schema().fields
    taken = set(recorded.values())
    by_name = {f.name: f.field_id for f in fields if f.field_id not in taken}
    there = {f.field_id for f in fields}
    field_ids = {c.column_id: recorded.get(c.column_id, by_name.get(c.name)) for c in schema.columns}
    return {column: field for column, field in field_ids.items() if field is not None and field in there}


def spell_field_ids(field_ids: dict[int, int], schema_id: int) -> dict[str, str]:
    """Returns the properties to set in the commit that changes the columns."""
    return {COLUMN_IDS: json.dumps(field_ids, separators=(",", ":")), SCHEMA_ID: str(schema_id)}


def find_past_field(metadata: TableMetadata, field_id: int) -> ice.NestedField | None:
    """Returns a field of the current schema, or of the newest schema that had it."""
    newest_first = sorted(metadata.schemas, key=lambda s: -s.schema_id)
    for schema in (metadata.schema(), *newest_first):
        for field in schema.fields:
            if field.field_id == field_id:
                return field
    return None


def planned_view(metadata: TableMetadata, schema: Schema) -> TableMetadata:
    """Returns the lake table with the column names of `schema`. For a schema older than the lake's also with its types
    and the columns dropped since: files of such a round are as they would have been before."""
    recorded = recorded_ids(metadata)
    if not recorded:
        return metadata
    nested = recorded_fields(metadata)
    now, is_older = metadata.schema(), schema.schema_id < int(metadata.properties.get(SCHEMA_ID, "0"))
    fields = list(_planned_fields(metadata, schema, recorded, is_older=is_older))
    fields = [_with_planned_type(metadata, f, schema, recorded, nested, is_older=is_older) for f in fields]
    if fields == list(now.fields):
        return metadata
    view = LakeSchema(*fields, schema_id=now.schema_id, identifier_field_ids=now.identifier_field_ids)
    schemas = [view if s.schema_id == now.schema_id else s for s in metadata.schemas]
    return metadata.model_copy(update={"schemas": schemas})


def _with_planned_type(
    metadata: TableMetadata,
    field: ice.NestedField,
    schema: Schema,
    recorded: dict[int, int],
    nested: dict[int, dict[int, int]],
    *,
    is_older: bool,
) -> ice.NestedField:
    """A column whose fields changed, with those of the planned schema."""
    column = next((c for c in schema.columns if recorded.get(c.column_id) == field.field_id), None)
    if column is None or column.column_id not in nested or not is_older:
        return field
    past = past_fields(metadata)
    types = NestedTypes(where=column.name, known=dict(nested[column.column_id]), past=past, new_ids=iter(()))
    return field.model_copy(update={"field_type": types.build(type_node(column), field.field_type)})


def _planned_fields(
    metadata: TableMetadata, schema: Schema, recorded: dict[int, int], *, is_older: bool
) -> Iterator[ice.NestedField]:
    columns = {recorded[c.column_id]: c for c in schema.columns if c.column_id in recorded}
    names, fields = {c.name for c in columns.values()}, metadata.schema().fields
    for field_id in columns.keys() - {f.field_id for f in fields} if is_older else ():
        past = find_past_field(metadata, field_id)
        if past is not None:
            yield past.model_copy(update={"name": columns[field_id].name})
    for field in fields:
        column = columns.get(field.field_id)
        if column is None:
            is_taken = field.name in names
            yield field.model_copy(update={"name": f"{field.name}#{field.field_id}"}) if is_taken else field
            continue
        planned: dict[str, Any] = {"name": column.name}
        kind = to_iceberg_type(column.type, column.name)
        if is_older and isinstance(field.field_type, ice.PrimitiveType) and spell_type(kind) != str(field.field_type):
            planned["field_type"] = kind
        if is_older:
            planned["required"] = not column.type.nullable
        yield field.model_copy(update=planned) if any(getattr(field, k) != v for k, v in planned.items()) else field
