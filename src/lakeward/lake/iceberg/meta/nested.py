# SPDX-License-Identifier: Apache-2.0
"""Types of nested columns whose fields change: each field keeps its field id in the lake table. Pure.

A property of the lake table says which of the lake's fields each field of a column is, dropped ones included. Columns
whose fields never changed are not in it: there names decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg import types as ice
from pyiceberg.table.metadata import TableMetadata

from lakeward.lake.iceberg.meta.types import spell_type, to_iceberg_type
from lakeward.model import ArrayType, Column, FieldNode, MapType, RowType, TypeNode, type_node

NESTED_IDS = "lakeward.nested-field-ids"

MayWiden = Callable[[ice.IcebergType, ice.IcebergType], bool]


def recorded_fields(metadata: TableMetadata) -> dict[int, dict[int, int]]:
    """Column id -> field id within the column -> the lake's."""
    recorded = json.loads(metadata.properties.get(NESTED_IDS, "{}"))
    return {int(c): {int(f): int(i) for f, i in fields.items()} for c, fields in recorded.items()}


def spell_fields(fields: Mapping[int, Mapping[int, int]]) -> dict[str, str]:
    return {NESTED_IDS: json.dumps(fields, separators=(",", ":"))} if fields else {}


def find_fields(column: Column, kind: ice.IcebergType) -> dict[int, int]:
    """Field id within the column -> the lake's, by the names of its fields."""
    return dict(_named(type_node(column), kind))


def _named(node: TypeNode, kind: ice.IcebergType) -> Iterator[tuple[int, int]]:
    by_name = {f.name: f for f in inner_fields(kind)}
    for part in node.parts:
        field = by_name.get(part.name)
        if field is not None:
            yield from ((part.field_id, field.field_id),) if part.field_id else ()
            yield from _named(part.node, field.field_type)


def inner_fields(kind: ice.IcebergType) -> tuple[ice.NestedField, ...]:
    """The fields of a struct, the element of a list, or key and value of a map."""
    match kind:
        case ice.StructType():
            return kind.fields
        case ice.ListType():
            return (kind.element_field,)
        case ice.MapType():
            return kind.key_field, kind.value_field
    return ()


def past_fields(metadata: TableMetadata) -> dict[int, ice.NestedField]:
    """Fields inside of columns as the newest schema had them that knew them, today's first."""
    fields: dict[int, ice.NestedField] = {}

    def walk(kind: ice.IcebergType) -> None:
        for field in inner_fields(kind):
            fields.setdefault(field.field_id, field)
            walk(field.field_type)

    for schema in (metadata.schema(), *sorted(metadata.schemas, key=lambda s: -s.schema_id)):
        for column in schema.fields:
            walk(column.field_type)
    return fields


@dataclass(frozen=True, kw_only=True)
class NestedTypes:
    """Builds the lake's types of one column. `known`: field id within the column -> the lake's; new fields are added to
    it. `old_fields`: ids that the column had before the change; None: the type of a schema that is given as it was."""

    where: str
    known: dict[int, int]
    past: Mapping[int, ice.NestedField]
    new_ids: Iterator[int]
    old_fields: Collection[int] | None = None
    may_widen: MayWiden = lambda have, due: True

    def build(self, node: TypeNode, have: ice.IcebergType | None) -> ice.IcebergType:
        """Raises `ValueError` with both types for values that may not fit, `UnsupportedType`."""
        match node.kind:
            case RowType():
                return ice.StructType(*(self._field(part) for part in node.parts))
            case ArrayType():
                old = have if isinstance(have, ice.ListType) else None
                (element,) = node.parts
                return ice.ListType(
                    element_id=next(self.new_ids) if old is None else old.element_id,
                    element_type=self.build(element.node, None if old is None else old.element_type),
                    element_required=self._required(element.node, None if old is None else old.element_required),
                )
            case MapType():
                old_map = have if isinstance(have, ice.MapType) else None
                key, value = node.parts
                return ice.MapType(
                    key_id=next(self.new_ids) if old_map is None else old_map.key_id,
                    key_type=self.build(key.node, None if old_map is None else old_map.key_type),
                    value_id=next(self.new_ids) if old_map is None else old_map.value_id,
                    value_type=self.build(value.node, None if old_map is None else old_map.value_type),
                    value_required=self._required(value.node, None if old_map is None else old_map.value_required),
                )
        due = to_iceberg_type(node.kind, self.where)
        if have is not None and spell_type(have) != spell_type(due) and not self.may_widen(have, due):
            raise ValueError(f"{spell_type(have)} to {spell_type(due)}")
        return due

    def _field(self, part: FieldNode) -> ice.NestedField:
        old = self._find_old(part)
        field_id = next(self.new_ids) if old is None else old.field_id
        self.known[part.field_id] = field_id
        kind = self.build(part.node, None if old is None else old.field_type)
        required = self._required(part.node, None if old is None else old.required)
        return ice.NestedField(field_id, part.name, kind, required=required, doc=part.comment)

    def _find_old(self, part: FieldNode) -> ice.NestedField | None:
        """A field that an ALTER left which did not come to its end is this one if it is alike."""
        old = self.past.get(self.known.get(part.field_id, 0))
        if old is None or self.old_fields is None or part.field_id in self.old_fields:
            return old
        due = spell_type(to_iceberg_type(part.node.build(), self.where))
        return old if (old.name, spell_type(old.field_type)) == (part.name, due) else None

    def _required(self, node: TypeNode, was: bool | None) -> bool:
        """A place that is there already is required where it was; new fields are nullable."""
        if self.old_fields is None or was is None:
            return not node.kind.nullable
        return was and not node.kind.nullable
