# SPDX-License-Identifier: Apache-2.0
"""Changes of a table's columns: what is asked for, the schema that comes of it, and what differs between two. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lakeward.errors import InvalidAlter, InvalidTable
from lakeward.model.newtable import FIXED_FOREVER, check_column_default, check_comment, check_new_columns
from lakeward.model.schema import Column, Schema
from lakeward.model.table import TableInfo
from lakeward.model.types import (
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    Int8Type,
    Int16Type,
    Int32Type,
    Int64Type,
    TimestampType,
    parts,
)
from lakeward.model.types.fieldchange import FIRST, FieldChanges, change_fields, find_broken, type_node

NAMING_PROPERTIES = ("table.auto-partition.key",)
"""Properties whose value is a column's name."""

_MICROS = 6
"""A timestamp of more digits has no place for every date."""

_WIDER = ((Int8Type, Int16Type, Int32Type, Int64Type), (Float32Type, Float64Type))


class ColumnChange(StrEnum):
    """Changes to columns that a lake format may support for a table that has files."""

    ADD = "add"
    ADD_BETWEEN = "add between others"
    RENAME = "rename"
    DROP = "drop"
    MOVE = "move"
    WIDEN = "widen"
    NULLABLE = "make nullable"
    COMMENT = "comment"
    DEFAULT = "add with a default"
    FIELDS = "change fields inside"


@dataclass(frozen=True, kw_only=True)
class ColumnChanges:
    """Requested changes. Columns have their names from before the call; in `after` (column -> the one before it, or
    `FIRST`) those from after it. A field inside of a column is named by its path: `address.city`, `items.element.n`,
    `prices.value.amount`; it is renamed to, and stands after, a name alone."""

    add: tuple[Column, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    widen: Mapping[str, DataType] = field(default_factory=dict)
    nullable: tuple[str, ...] = ()
    comments: Mapping[str, str | None] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any((self.add, self.rename, self.drop, self.widen, self.nullable, self.comments, self.after))


@dataclass(frozen=True)
class ColumnDifference:
    """One change of one column: None before it was added, and after it was dropped."""

    kind: ColumnChange
    before: Column | None
    after: Column | None

    def __str__(self) -> str:
        old, new = self.before, self.after
        if old is None or new is None:
            column = new or old
            assert column is not None
            if self.kind is ColumnChange.DEFAULT:
                return f"default {column.default!r} of column {column.name}"
            return f"{self.kind} column {column.name}" + ("" if new is None else f" {new.type}")
        to = dict.fromkeys((ColumnChange.WIDEN, ColumnChange.FIELDS), f" to {new.type.sql}")
        to[ColumnChange.RENAME] = f" to {new.name}"
        return f"{self.kind} column {old.name}{to.get(self.kind, '')}"


def change_columns(table: TableInfo, changes: ColumnChanges) -> TableInfo:
    """The table with these changes, at its next schema; the table itself where they change nothing. Raises
    `InvalidAlter`, `InvalidTable`."""
    before = table.schema
    changes, of_fields = _split_fields(table, changes)
    _check_named(table, changes)
    fixed = fixed_columns(table)
    for name in changes.drop:
        if name in fixed:
            raise _wrong(table, f"drop column {name}", f"it is a key, and keys are {FIXED_FOREVER}")
    for name in of_fields:
        if name in changes.drop:
            raise _wrong(table, f"change fields of column {name}", "the same call drops it")
    columns = [
        _changed(table, _with_fields(table, c, of_fields), changes, fixed)
        for c in before.columns
        if c.name not in changes.drop
    ]
    _check_names(table, columns, changes, of_fields)
    added = tuple(replace(check_column_default(c), column_id=0) for c in changes.add)
    numbered = Schema(columns=(*columns, *added), schema_id=before.schema_id + 1, highest_id=before.highest_id)
    ordered = _ordered(table, numbered.columns, changes)
    schema = replace(numbered, columns=ordered)
    return table if not any(diff_schemas(before, schema)) else table.with_schema(schema)


def diff_schemas(before: Schema, after: Schema) -> Iterator[ColumnDifference]:
    """Column by column, found by id; what was dropped first."""
    for column in before.columns:
        if column.column_id not in after.by_id:
            yield ColumnDifference(ColumnChange.DROP, column, None)
    remaining_columns = [c for c in before.columns if c.column_id in after.by_id]
    stay = _longest_run([c.column_id for c in remaining_columns], [c.column_id for c in after.columns])
    last = max((i for i, c in enumerate(after.columns) if c.column_id in before.by_id), default=-1)
    for place, column in enumerate(after.columns):
        old = before.by_id.get(column.column_id)
        if old is None:
            kind = ColumnChange.ADD if place > last else ColumnChange.ADD_BETWEEN
            yield ColumnDifference(kind, None, column)
            if column.default is not None:
                yield ColumnDifference(ColumnChange.DEFAULT, None, column)
            continue
        is_changed, is_nested = old.type.sql != column.type.sql, bool(parts(old.type) and parts(column.type))
        differs = {
            ColumnChange.RENAME: old.name != column.name,
            ColumnChange.WIDEN: is_changed and not is_nested,
            ColumnChange.FIELDS: is_nested and (is_changed or old.field_ids != column.field_ids),
            ColumnChange.NULLABLE: old.type.nullable != column.type.nullable,
            ColumnChange.COMMENT: old.comment != column.comment,
            ColumnChange.MOVE: column.column_id not in stay,
        }
        yield from (ColumnDifference(kind, old, column) for kind, is_different in differs.items() if is_different)


def may_widen(old: DataType, new: DataType) -> bool:
    """Has every value of the one type a place in the other, with the same meaning? Nullability does not count."""
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return new.scale == old.scale and new.precision >= old.precision
    if isinstance(old, DateType) and isinstance(new, TimestampType):
        return new.precision <= _MICROS
    for kinds in _WIDER:
        if isinstance(old, kinds) and isinstance(new, kinds):
            return kinds.index(type(new)) >= kinds.index(type(old))
    return old.sql == new.sql


def _split_fields(table: TableInfo, changes: ColumnChanges) -> tuple[ColumnChanges, dict[str, FieldChanges]]:
    """Changes of whole columns, and of fields by their column."""
    nested = {c.name for c in table.schema.columns if parts(c.type)}

    def split(path: str) -> tuple[str, str] | None:
        if path in table.schema.names:
            return None
        column = next((n for n in nested if path.startswith(f"{n}.")), None)
        return None if column is None else (column, path.removeprefix(f"{column}."))

    named: dict[str, Mapping[str, Any]] = {
        "rename": changes.rename,
        "widen": changes.widen,
        "comments": changes.comments,
        "after": changes.after,
    }
    named |= {"drop": dict.fromkeys(changes.drop), "nullable": dict.fromkeys(changes.nullable)}
    named["add"] = {c.name: c for c in changes.add}
    of_fields: dict[str, dict[str, Any]] = {}
    for what, by_path in named.items():
        for path, value in by_path.items():
            if (field := split(path)) is not None:
                of_fields.setdefault(field[0], {w: {} for w in named})[what][field[1]] = value
    if not of_fields:
        return changes, {}
    plain: dict[str, Any] = {
        what: {p: v for p, v in by_path.items() if split(p) is None} for what, by_path in named.items()
    }
    for one in (plain, *of_fields.values()):
        one |= {what: tuple(one[what]) for what in ("drop", "nullable")}
    column_changes = ColumnChanges(**{**plain, "add": tuple(plain["add"].values())})
    return column_changes, {column: FieldChanges(**by_kind) for column, by_kind in of_fields.items()}


def _with_fields(table: TableInfo, column: Column, of_fields: Mapping[str, FieldChanges]) -> Column:
    changes = of_fields.get(column.name)
    if changes is None:
        return column
    kind, field_ids, highest = change_fields(str(table.path), column, changes, may_widen)
    return replace(column, type=kind, field_ids=field_ids, highest_field=highest)


def _check_named(table: TableInfo, changes: ColumnChanges) -> None:
    """Is every column that is to change there, and is none both changed and dropped?"""
    names = set(table.schema.names)
    asked = {
        "rename": changes.rename,
        "drop": changes.drop,
        "widen": changes.widen,
        "make nullable": changes.nullable,
        "comment": changes.comments,
    }
    for what, named in asked.items():
        for name in named:
            change = f"{what} column {name}"
            if name not in names:
                raise _wrong(table, change, f"there is no such column; there are {', '.join(table.schema.names)}")
            if name in changes.drop and what != "drop":
                raise _wrong(table, change, "the same call drops it")
    if len(set(changes.drop)) < len(changes.drop):
        raise _wrong(table, f"drop column {', '.join(changes.drop)}", "a column is named twice")
    if names <= set(changes.drop):
        raise _wrong(table, f"drop column {', '.join(changes.drop)}", "a table has at least one column")
    for key in NAMING_PROPERTIES:
        key_column = table.descriptor.properties.get(key)
        if key_column in changes.rename:
            raise _wrong(table, f"rename column {key_column}", f"property {key} names it")
    for column in changes.add:
        if not column.type.nullable and column.default is None:
            reason = "an added column must be nullable or have a default: older rows have no value for it"
            raise _wrong(table, f"add column {column.name}", reason)


def _changed(table: TableInfo, column: Column, changes: ColumnChanges, fixed: set[str]) -> Column:
    name, kind, old = column.name, column.type, column.type
    if name in changes.widen:
        kind = changes.widen[name].with_nullable(old.nullable)
        change = f"widen column {name} from {old.sql} to {kind.sql}"
        if not may_widen(old, kind):
            reason = "integers may become larger ones, FLOAT DOUBLE, DATE TIMESTAMP(6) at most, DECIMAL may get digits"
            raise _wrong(table, change, f"values may not fit: {reason}; add a column of the new type")
        if name in fixed and kind != old:
            raise _wrong(table, change, "it is a key: rows are found by the bytes of their keys")
    if name in changes.nullable:
        if name in fixed:
            raise _wrong(table, f"make nullable column {name}", "it is a key")
        kind = kind.with_nullable(True)
    comment = changes.comments.get(name, column.comment)
    return replace(column, name=changes.rename.get(name, name), type=kind, comment=comment)


def _check_names(
    table: TableInfo, columns: Sequence[Column], changes: ColumnChanges, of_fields: Iterable[str] = ()
) -> None:
    """Raises `InvalidTable`, `InvalidAlter` for a new name that is in use."""
    ids = {table.schema.column(old).column_id for old in (*changes.rename, *of_fields)}
    renamed = [c for c in columns if c.column_id in ids]
    others = [c for c in columns if c.column_id not in ids]
    for old, new in changes.rename.items():
        if new in {c.name for c in others} or list(changes.rename.values()).count(new) > 1:
            raise _wrong(table, f"rename column {old} to {new}", f"there is a column {new}; drop or rename it first")
    for name, comment in changes.comments.items():
        check_comment(str(table.path), name, comment)
    check_new_columns(str(table.path), others, [*renamed, *changes.add])


def _ordered(table: TableInfo, columns: Iterable[Column], changes: ColumnChanges) -> tuple[Column, ...]:
    ordered = list(columns)
    by_name = {c.name: c for c in ordered}
    for name, before in changes.after.items():
        for named in (name, *([before] if before != FIRST else [])):
            if named not in by_name:
                reason = f"there is no column {named} after the change; there are {', '.join(by_name)}"
                raise _wrong(table, f"move column {name}", reason)
        if name == before:
            raise _wrong(table, f"move column {name}", "it cannot stand after itself")
        ordered.remove(by_name[name])
        place = 0 if before == FIRST else ordered.index(by_name[before]) + 1
        ordered.insert(place, by_name[name])
    return tuple(ordered)


def _longest_run(old: Sequence[int], new: Sequence[int]) -> set[int]:
    """Ids that keep their order, as many as there can be: the others were moved."""
    place_of = {column_id: place for place, column_id in enumerate(old)}
    common = [i for i in new if i in place_of]
    ends: list[int] = []  # for each length of a run the lowest place at which one of that length ends
    before: dict[int, int | None] = {}
    for column_id in common:
        at = bisect_left(ends, place_of[column_id])
        before[column_id] = old[ends[at - 1]] if at else None
        ends[at : at + 1] = [place_of[column_id]]
    run, last = set(), old[ends[-1]] if ends else None
    while last is not None:
        run.add(last)
        last = before[last]
    return run


def refuse_type(table: TableInfo, column: Column, lake_type: str) -> InvalidAlter:
    """Error for a column that a lake cannot give this type. No lake makes a type narrower: a column stays wide after a
    call that widened it and did not finish."""
    before = table.schema.by_id.get(column.column_id, column)
    if before.type.sql == column.type.sql:
        reason = f"an ALTER that did not come to its end made it {lake_type} in its lake; widen it in this one too"
        return _wrong(table, f"leave column {column.name} at {column.type.sql}", reason)
    return _wrong(table, f"widen column {column.name} to {column.type.sql}", f"its lake has {lake_type} there")


def check_evolved(before: TableInfo, after: TableInfo) -> None:
    """Is the second what `change_columns` may make of the first? Stores ask it again. Raises `InvalidAlter`."""
    old, new = before.schema, after.schema
    differences = list(diff_schemas(old, new))
    due = old.schema_id + (1 if differences else 0)
    if new.schema_id != due:
        raise _wrong(before, f"schema id {old.schema_id} to {new.schema_id}", f"{due} is due")
    if new.highest_id < old.highest_id:
        raise _wrong(before, f"highest column id {old.highest_id} to {new.highest_id}", "no id is given away twice")
    for one in differences:
        if one.before is None:
            assert one.after is not None
            if one.after.column_id <= old.highest_id:
                raise _wrong(before, str(one), f"its id {one.after.column_id} was given to another column before")
            if not one.after.type.nullable and one.after.default is None:
                raise _wrong(before, str(one), "older rows have no value for it: make it nullable")
        elif one.after is not None and one.before.default != one.after.default:
            raise _wrong(before, f"default of column {one.before.name}", "it is the value of older rows, and stays")
        elif one.after is not None and one.kind is ColumnChange.FIELDS:
            if reason := find_broken(type_node(one.before), type_node(one.after), may_widen):
                raise _wrong(before, str(one), reason)
            new_ids = set(one.after.field_ids) - set(one.before.field_ids)
            if new_ids and min(new_ids) <= one.before.highest_field:
                raise _wrong(before, str(one), "no field id is given away twice")
        elif one.after is not None and not (parts(one.after.type) or may_widen(one.before.type, one.after.type)):
            raise _wrong(before, str(one), "values may not fit")
        elif one.kind is ColumnChange.NULLABLE and one.after is not None and not one.after.type.nullable:
            raise _wrong(before, str(one), "older rows may have nulls")
    try:
        moved = before.descriptor.with_schema(new)
    except InvalidTable as error:
        raise _wrong(before, "drop a key column", error.reason) from error
    for what in ("primary_key", "partition_keys", "bucket_keys"):
        keys = getattr(after.descriptor, what)
        if keys != getattr(moved, what):
            raise _wrong(before, f"{what.replace('_', ' ')} to {keys}", f"it is {FIXED_FOREVER}")
    for name in fixed_columns(before):
        column = old.column(name)
        if new.by_id[column.column_id].type != column.type:
            raise _wrong(before, f"type of key column {name}", "rows are found by the bytes of their keys")


def fixed_columns(table: TableInfo) -> set[str]:
    """Columns that say where a row lies."""
    descriptor = table.descriptor
    return {*descriptor.primary_key, *descriptor.partition_columns, *descriptor.bucket_keys}


def _wrong(table: TableInfo, change: str, reason: str) -> InvalidAlter:
    return InvalidAlter(table=str(table.path), change=change, reason=reason)
