# SPDX-License-Identifier: Apache-2.0
"""Translates column changes of other engines in a lake table to changes of our table. Pure."""

from __future__ import annotations

from pyiceberg import types as ice
from pyiceberg.table.metadata import TableMetadata

from lakeward.errors import InvalidAlter, LakeSchemaBroken, UnsupportedType
from lakeward.lake.iceberg.meta.columnids import find_field_ids
from lakeward.lake.iceberg.meta.diff import check_fits
from lakeward.lake.iceberg.meta.foreign import to_model_type
from lakeward.lake.iceberg.meta.types import find_default, spell_type
from lakeward.model import FIRST, SYSTEM_COLUMNS, Column, ColumnChanges, DataType, TableInfo


def plan_followed(table: TableInfo, before: TableMetadata, after: TableMetadata) -> ColumnChanges:
    """Plans the followed change. `after`: metadata with the other engine's columns; its changes of columns that our
    table does not have stay its own. Raises `InvalidAlter` for changes that a table cannot follow."""
    plan = _Plan(table, before, after)
    return ColumnChanges(
        add=plan.added(),
        rename=plan.renamed(),
        drop=tuple(plan.dropped()),
        widen=plan.widened(),
        nullable=plan.nullable(),
        comments=plan.comments(),
        after=plan.order(),
    )


def check_followed(table: TableInfo, before: TableMetadata, after: TableMetadata) -> None:
    """Checks other changes: rounds must still be able to write. A part that was broken before may be changed in any
    way. Raises `InvalidAlter`."""
    try:
        check_fits(table, after)
    except LakeSchemaBroken as broken:
        if not is_fitting(table, before):
            return
        reason = f"{broken.diff}: rounds could not go on"
        raise InvalidAlter(table=str(table.path), change="its lake table", reason=reason) from broken


def is_fitting(table: TableInfo, metadata: TableMetadata) -> bool:
    try:
        check_fits(table, metadata)
    except LakeSchemaBroken:
        return False
    return True


class _Plan:
    def __init__(self, table: TableInfo, before: TableMetadata, after: TableMetadata) -> None:
        self._table = table
        self._old = {f.field_id: f for f in before.schema().fields}
        self._new = {f.field_id: f for f in after.schema().fields}
        field_ids = find_field_ids(before, table.schema)
        self._ours = {field_ids[c.column_id]: c for c in table.schema.columns if c.column_id in field_ids}
        self._check_system()

    def _check_system(self) -> None:
        for field_id, field in self._old.items():
            if field.name in SYSTEM_COLUMNS and self._new.get(field_id) != field:
                raise self._wrong(f"change column {field.name}", "rounds write it")

    def _stay(self) -> list[tuple[Column, ice.NestedField, ice.NestedField]]:
        return [(c, self._old[i], self._new[i]) for i, c in self._ours.items() if i in self._new]

    def dropped(self) -> list[str]:
        return [c.name for i, c in self._ours.items() if i not in self._new]

    def renamed(self) -> dict[str, str]:
        return {c.name: new.name for c, old, new in self._stay() if new.name != old.name}

    def widened(self) -> dict[str, DataType]:
        pairs = [(c, new) for c, old, new in self._stay() if spell_type(new.field_type) != spell_type(old.field_type)]
        for column, new in pairs:
            if not new.field_type.is_primitive:
                raise self._wrong(f"change fields of column {column.name}", "only whole columns can be followed")
        return {c.name: self._type(new) for c, new in pairs}

    def nullable(self) -> tuple[str, ...]:
        for column, old, new in self._stay():
            if new.required and not old.required:
                raise self._wrong(f"require column {column.name}", "rows that are there may have nulls")
        return tuple(c.name for c, old, new in self._stay() if old.required and not new.required)

    def comments(self) -> dict[str, str | None]:
        return {c.name: new.doc for c, old, new in self._stay() if new.doc != old.doc}

    def added(self) -> tuple[Column, ...]:
        fields = [f for i, f in self._new.items() if i not in self._old]
        for field in fields:
            if field.required and field.initial_default is None:
                raise self._wrong(f"add column {field.name}", "it is required, and rows that are there have no value")
            if field.initial_default != field.write_default:
                reason = "its defaults for older and for new rows differ, which is not followed"
                raise self._wrong(f"add column {field.name}", reason)
        return tuple(
            Column(
                name=f.name, type=self._type(f).with_nullable(not f.required), comment=f.doc, default=find_default(f)
            )
            for f in fields
        )

    def order(self) -> dict[str, str]:
        """Returns no moves if added columns are last and all others keep their order."""
        shown = [i for i in self._new if i in self._ours or i not in self._old]
        usual = [i for i in self._ours if i in self._new] + [i for i in self._new if i not in self._old]
        if shown == usual:
            return {}
        names = [self._new[i].name for i in shown]
        return dict(zip(names, [FIRST, *names], strict=False))

    def _type(self, field: ice.NestedField) -> DataType:
        try:
            return to_model_type(field.field_type, field.name)
        except UnsupportedType as error:
            raise self._wrong(f"column {field.name}", str(error)) from error

    def _wrong(self, change: str, reason: str) -> InvalidAlter:
        return InvalidAlter(table=str(self._table.path), change=change, reason=reason)
