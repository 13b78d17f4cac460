# SPDX-License-Identifier: Apache-2.0
"""Describes the effects of an ALTER of columns: in the hot store, in each lake, for old writers, for readers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lakeward.model import ColumnChange, ColumnDifference, SideName, TableInfo, diff_schemas


def plan_alter(before: TableInfo, after: TableInfo, lakes: Mapping[SideName, Sequence[str]]) -> tuple[str, ...]:
    """Nothing where no column changes. `lakes`: those that are enabled, in the order in which they are changed, with
    notes about their readers."""
    changes = list(diff_schemas(before.schema, after.schema))
    if not changes:
        return ()
    new = after.schema.schema_id
    listed = ", ".join(map(str, changes))
    lines = [f"lake {'; '.join([f'{name}: {listed}', 'no file is written again', *lakes[name]])}" for name in lakes]
    rows = "rows and log stay as they are and are read by column id"
    lines.append(f"hot store: schema {new} ({listed}); {rows}")
    return (*lines, *_for_writers(before, changes), *_for_readers(before, changes))


def _for_writers(before: TableInfo, changes: list[ColumnDifference]) -> Iterator[str]:
    """Effects for writers that still have the old schema."""
    dropped = [c.before.name for c in changes if c.kind is ColumnChange.DROP and c.before is not None]
    new = [c.after for c in changes if c.before is None and c.after is not None and c.kind is not ColumnChange.DEFAULT]
    added = [c.name for c in new if c.default is None]
    notes = [f"what they send for {', '.join(dropped)} is ignored and counted"] if dropped else []
    if added:
        notes.append(f"{', '.join(added)} {'keeps its value' if before.is_pk else 'is null'} in their rows")
    if defaulted := [c.name for c in new if c.default is not None]:
        what = "keeps its value, and has its default in new rows" if before.is_pk else "has its default in their rows"
        notes.append(f"{', '.join(defaulted)} {what}")
    detail = f": {'; '.join(notes)}" if notes else ""
    yield f"writers with schema {before.schema.schema_id} go on{detail}"


def _for_readers(before: TableInfo, changes: list[ColumnDifference]) -> Iterator[str]:
    yield "reads show today's names, of old snapshots too; a read that is under way is planned again"
    if any(c.kind in (ColumnChange.RENAME, ColumnChange.DROP, ColumnChange.WIDEN) for c in changes):
        yield "Spark streams and other engines that name these columns stop until they are started again"
