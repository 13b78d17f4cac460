# SPDX-License-Identifier: Apache-2.0
"""Results of ALTER on a hot table: columns as `change_columns` makes them, changed properties. Pure."""

from __future__ import annotations

from lakeward.config.tables import check_alter
from lakeward.errors import InvalidAlter
from lakeward.hot.logbatch.header import MAX_SCHEMA_ID
from lakeward.model import FIXED_FOREVER, TableInfo, check_evolved


def check_altered(old: TableInfo, new: TableInfo) -> None:
    """Raises `InvalidAlter` naming the change that is not allowed."""
    for what in ("bucket_count", "bucket_function"):
        before, after = getattr(old.descriptor, what), getattr(new.descriptor, what)
        if before != after:
            raise _wrong(old, f"{what.replace('_', ' ')} {before} to {after}", f"it is {FIXED_FOREVER}")
    if old.table_id != new.table_id or old.path != new.path:
        raise _wrong(old, f"identity to {new.path} {new.table_id}", "a table keeps its name and id")
    check_evolved(old, new)
    if new.schema.schema_id > MAX_SCHEMA_ID:
        reason = f"a log batch has room for {MAX_SCHEMA_ID} of them; make a new table"
        raise _wrong(old, f"schema id to {new.schema.schema_id}", reason)
    have, due = old.descriptor.properties, new.descriptor.properties
    check_alter(str(old.path), {k: due.get(k) for k in {*have, *due} if have.get(k) != due.get(k)})


def _wrong(old: TableInfo, change: str, reason: str) -> InvalidAlter:
    return InvalidAlter(table=str(old.path), change=change, reason=reason)
