# SPDX-License-Identifier: Apache-2.0
"""Model types to Arrow and back, and values of a column as another of its types. What Arrow cannot say (CHAR length,
exact precision, ids of fields) rides in field metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from lakeward.errors import UnsupportedType
from lakeward.model.schema import BUCKET, CHANGE_TYPE, OFFSET, PREV_OFFSET, TIMESTAMP, Column, Schema
from lakeward.model.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    RowField,
    RowType,
    TimestampLtzType,
    TimestampType,
    TimeType,
    TypeVisitor,
    VectorType,
)
from lakeward.model.types.fieldchange import TypeNode, type_node
from lakeward.model.types.literal import default_value
from lakeward.model.types.nestednulls import cast_values, map_entries, struct_of
from lakeward.model.types.sqltype import parse_type
from lakeward.model.types.typetable import TYPES, row_of

TYPE_KEY = b"lakeward.type"
COMMENT_KEY = b"comment"
DEFAULT_KEY = b"lakeward.default"

_PLAIN: dict[type[DataType], pa.DataType] = {r.cls: pa.type_for_alias(r.arrow) for r in TYPES if r.arrow is not None}
_FROM_PLAIN: dict[pa.DataType, DataType] = {
    pa.type_for_alias(arrow): r.cls()
    for r in TYPES
    if r.arrow is not None and not r.is_spelled
    for arrow in (r.arrow, *r.also_from)
}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def time_unit(precision: int) -> str:
    """The coarsest Arrow unit that holds so many fractional digits."""
    return next(unit for unit, digits in _DIGITS.items() if precision <= digits)


class _ToArrow(TypeVisitor[pa.DataType]):
    def plain(self, kind: DataType, path: str) -> pa.DataType:
        if type(kind) in _PLAIN:
            return _PLAIN[type(kind)]
        match kind:
            case DecimalType():
                return pa.decimal128(kind.precision, kind.scale)
            case BinaryType():
                return pa.binary(kind.length)
            case TimeType():
                unit = time_unit(kind.precision)
                return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
            case TimestampType():
                return pa.timestamp(time_unit(kind.precision))
            case TimestampLtzType():
                return pa.timestamp(time_unit(kind.precision), tz="UTC")
        raise UnsupportedType(where=path, type=str(kind), by="Arrow", reason="no mapping")

    def array(self, kind: ArrayType, element: pa.DataType) -> pa.DataType:
        return pa.list_(_field("element", kind.element, None, element))

    def vector(self, kind: VectorType, path: str) -> pa.DataType:
        """Arrow keeps nulls in the place of the elements of a null."""
        return pa.list_(pa.field("element", pa.float32()), kind.length)

    def map(self, kind: MapType, key: pa.DataType, value: pa.DataType) -> pa.DataType:
        return pa.map_(_field("key", kind.key, None, key), _field("value", kind.value, None, value))

    def row(self, kind: RowType, fields: Sequence[pa.DataType], path: str) -> pa.DataType:
        return pa.struct([_field(f.name, f.type, f.comment, a) for f, a in zip(kind.fields, fields, strict=True)])


_TO_ARROW = _ToArrow()


def to_arrow_type(kind: DataType) -> pa.DataType:
    return _TO_ARROW.visit(kind, "schema")


def map_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The same nesting with other plain types, without metadata. Vectors become lists."""

    def inner(field: pa.Field) -> pa.Field:
        return pa.field(field.name, map_leaves(field.type, change), field.nullable)

    if pa.types.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field))
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_field))
    return pa.struct([inner(f) for f in kind]) if pa.types.is_struct(kind) else change(kind)


def to_arrow_schema(schema: Schema | Sequence[Column]) -> pa.Schema:
    columns = schema.columns if isinstance(schema, Schema) else schema
    return pa.schema([to_arrow_field(c) for c in columns])


def to_arrow_field(column: Column) -> pa.Field:
    field = _field(column.name, column.type, column.comment, to_arrow_type(column.type))
    return field if column.default is None else with_default(field, column.default)


def with_default(field: pa.Field, default: str) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), DEFAULT_KEY: default.encode()})


def default_scalar(field: pa.Field) -> pa.Scalar:
    """Null where the field has no default."""
    text = (field.metadata or {}).get(DEFAULT_KEY)
    return pa.scalar(None if text is None else default_value(text.decode(), from_arrow_field(field)), field.type)


def missing_values(field: pa.Field, count: int) -> pa.Array:
    """The values of rows that do not have this column: its default, else nulls."""
    if DEFAULT_KEY not in (field.metadata or {}):
        return pa.nulls(count, field.type)
    return pa.repeat(default_scalar(field), count)


def from_arrow_schema(schema: pa.Schema) -> tuple[Column, ...]:
    return tuple(
        Column(name=f.name, type=from_arrow_field(f), comment=_text(f, COMMENT_KEY), default=_text(f, DEFAULT_KEY))
        for f in schema
    )


def from_arrow_field(field: pa.Field) -> DataType:
    spelled = (field.metadata or {}).get(TYPE_KEY)
    if spelled is not None:
        kind = parse_type(spelled.decode())
        if to_arrow_type(kind) == field.type:
            return kind.with_nullable(field.nullable)
    return _from_arrow_type(field.name, field.type).with_nullable(field.nullable)


def _from_arrow_type(where: str, arrow: pa.DataType) -> DataType:
    if arrow in _FROM_PLAIN:
        return _FROM_PLAIN[arrow]
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and arrow.scale >= 0:
        return DecimalType(precision=arrow.precision, scale=arrow.scale)
    if pa.types.is_fixed_size_binary(arrow) and arrow.byte_width > 0:
        return BinaryType(length=arrow.byte_width)
    if pa.types.is_time(arrow):
        return TimeType(precision=_DIGITS[arrow.unit])
    if pa.types.is_timestamp(arrow):
        precision = _DIGITS[arrow.unit]
        return TimestampType(precision=precision) if arrow.tz is None else TimestampLtzType(precision=precision)
    if pa.types.is_dictionary(arrow):
        return _from_arrow_type(where, arrow.value_type)
    if pa.types.is_map(arrow):
        return MapType(key=_inner(arrow.key_field), value=_inner(arrow.item_field))
    if pa.types.is_fixed_size_list(arrow) and pa.types.is_float32(arrow.value_type) and arrow.list_size > 0:
        return VectorType(length=arrow.list_size)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return ArrayType(element=_inner(arrow.value_field))
    if pa.types.is_struct(arrow):
        return RowType(
            fields=tuple(RowField(name=f.name, type=_inner(f), comment=_text(f, COMMENT_KEY)) for f in arrow)
        )
    raise UnsupportedType(where=where, type=str(arrow), by="Lakeward", reason="no column type matches this Arrow type")


def _inner(field: pa.Field) -> DataType:
    """Vectors are columns; inside of others they are arrays."""
    kind = from_arrow_field(field)
    return kind.as_array if isinstance(kind, VectorType) else kind


def _field(name: str, kind: DataType, comment: str | None, arrow: pa.DataType) -> pa.Field:
    metadata: dict[bytes, bytes] = {}
    if row_of(kind).is_spelled:
        metadata[TYPE_KEY] = kind.sql.encode()
    if comment is not None:
        metadata[COMMENT_KEY] = comment.encode()
    return pa.field(name, arrow, kind.nullable, metadata or None)


def _text(field: pa.Field, key: bytes) -> str | None:
    raw = (field.metadata or {}).get(key)
    return None if raw is None else raw.decode()


FIELD_KEY = b"lakeward.field"


def fit_column(values: pa.Array, old: Column, new: Column) -> pa.Array:
    """Values of the one column as the other, which has the same id and was changed since, or before."""
    kind = to_arrow_type(new.type)
    if old.field_ids == new.field_ids and (not old.field_ids or old.type.sql == new.type.sql):
        return cast_values(values, kind)
    return cast_fields(values, _keyed(type_node(old)), _keyed(type_node(new)), FIELD_KEY)


def cast_fields(values: pa.Array, have: pa.DataType, kind: pa.DataType, key: bytes) -> pa.Array:
    """`have`: the type of the values, with a key at each field of a struct, as `kind` has it."""
    if pa.types.is_struct(kind) and pa.types.is_struct(have):
        places = {(f.metadata or {}).get(key): i for i, f in enumerate(have)}
        columns, parts = values.flatten(), []
        for field in kind:
            at = places.get((field.metadata or {}).get(key, b""))
            if at is None:
                parts.append(pa.nulls(len(values), field.type))
            else:
                parts.append(cast_fields(columns[at], have.field(at).type, field.type, key))
        return struct_of(values, kind, parts)
    is_map = pa.types.is_map(kind) and pa.types.is_map(have)
    if not is_map and not (pa.types.is_list(kind) and pa.types.is_list(have)):
        return cast_values(values, kind)
    if is_map:
        entries, inner = map_entries(values), pa.struct([kind.key_field, kind.item_field])
        pairs = zip(entries.flatten(), (have.key_type, have.item_type), inner, strict=True)
        child = struct_of(entries, inner, [cast_fields(v, t, f.type, key) for v, t, f in pairs])
    else:
        child = cast_fields(values.values, have.value_type, kind.value_type, key)
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:2], offset=values.offset, children=[child])


def _keyed(node: TypeNode) -> pa.DataType:
    types = [_keyed(part.node) for part in node.parts]
    fields = [pa.field(p.name, t, p.node.kind.nullable) for p, t in zip(node.parts, types, strict=True)]
    match node.kind:
        case ArrayType():
            return pa.list_(fields[0])
        case MapType():
            return pa.map_(*fields)
        case RowType():
            ids = (str(part.field_id) for part in node.parts)
            return pa.struct([f.with_metadata({FIELD_KEY: i}) for f, i in zip(fields, ids, strict=True)])
    return to_arrow_type(node.kind)


TIMESTAMP_COLUMN_TYPE = pa.timestamp("ms", tz="UTC")

BUCKET_FIELD = pa.field(BUCKET, pa.int32(), nullable=False)
OFFSET_FIELD = pa.field(OFFSET, pa.int64(), nullable=False)
TIMESTAMP_FIELD = pa.field(TIMESTAMP, TIMESTAMP_COLUMN_TYPE, nullable=False)
CHANGE_TYPE_FIELD = pa.field(CHANGE_TYPE, pa.int8(), nullable=False)
PREV_OFFSET_FIELD = pa.field(PREV_OFFSET, pa.int64())

LAKE_FIELDS = (BUCKET_FIELD, OFFSET_FIELD, TIMESTAMP_FIELD)
LAKE_NAMES = tuple(f.name for f in LAKE_FIELDS)
SNAPSHOT_FIELDS = (OFFSET_FIELD, TIMESTAMP_FIELD)
LOG_FIELDS = (OFFSET_FIELD, TIMESTAMP_FIELD, CHANGE_TYPE_FIELD)


def log_fields(*, is_pk: bool) -> tuple[pa.Field, ...]:
    """Fields of the system columns of a log read; a PK table also has the offset of the row that a change replaces."""
    return (*LOG_FIELDS, PREV_OFFSET_FIELD) if is_pk else LOG_FIELDS
