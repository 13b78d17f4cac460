# SPDX-License-Identifier: Apache-2.0
"""What a table may be altered into: nullable columns added last, properties changed. Pure."""

from __future__ import annotations

from lakeward.config.tables import check_alter
from lakeward.errors import InvalidAlter
from lakeward.hot.logbatch.header import MAX_SCHEMA_ID
from lakeward.model.newtable import FIXED_FOREVER
from lakeward.model.table import TableInfo


def check_altered(old: TableInfo, new: TableInfo) -> None:
    """Raises `InvalidAlter` naming the change that is not allowed."""
    _check_fixed(old, new)
    _check_columns(old, new)
    before, after = old.descriptor.properties, new.descriptor.properties
    check_alter(str(old.path), {k: after.get(k) for k in {*before, *after} if before.get(k) != after.get(k)})


def _check_fixed(old: TableInfo, new: TableInfo) -> None:
    for what in ("primary_key", "partition_keys", "bucket_keys", "bucket_count", "bucket_function"):
        before, after = getattr(old.descriptor, what), getattr(new.descriptor, what)
        if before != after:
            raise _wrong(old, f"{what.replace('_', ' ')} {before} to {after}", f"it is {FIXED_FOREVER}")
    if old.table_id != new.table_id or old.path != new.path:
        raise _wrong(old, f"identity to {new.path} {new.table_id}", "a table keeps its name and id")


def _check_columns(old: TableInfo, new: TableInfo) -> None:
    before, after = old.schema, new.schema
    kept = after.columns[: len(before.columns)]
    for mine, theirs in zip(before.columns, kept, strict=False):
        if (mine.name, mine.type) != (theirs.name, theirs.type):
            raise _wrong(
                old, f"column {mine.name} {mine.type} to {theirs.name} {theirs.type}", "columns are only added, last"
            )
    if len(kept) < len(before.columns):
        raise _wrong(old, f"column {before.columns[len(kept)].name} dropped", "columns are only added, last")
    added = after.columns[len(before.columns) :]
    for column in added:
        if not column.type.nullable:
            raise _wrong(
                old, f"column {column.name} {column.type} added", "older rows have no value for it: make it nullable"
            )
    if after.schema_id > MAX_SCHEMA_ID:
        raise _wrong(
            old,
            f"schema id to {after.schema_id}",
            f"a log batch has room for {MAX_SCHEMA_ID} of them; make a new table",
        )
    due = before.schema_id + (1 if added else 0)
    if after.schema_id != due:
        raise _wrong(old, f"schema id {before.schema_id} to {after.schema_id}", f"{due} is due")


def _wrong(old: TableInfo, change: str, reason: str) -> InvalidAlter:
    return InvalidAlter(table=str(old.path), change=change, reason=reason)
