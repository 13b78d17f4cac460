# SPDX-License-Identifier: Apache-2.0
"""Metadata of a Delta table whose columns change: column mapping when a column is renamed or dropped, type widening
when one becomes wider. Pure.

Delta's readers find a column by name until column mapping is on, so a table without renamed or dropped columns needs no
new reader feature. A widened type needs a reader that supports type widening.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from lakeward.lake.core.columnmap import ColumnMap, StoredColumn, with_new_keys
from lakeward.lake.delta.columns import SYSTEM, new_field, physical_name
from lakeward.lake.delta.meta.actions import FIELD_ID, MAPPING_KEY, PHYSICAL_NAME, Action, DeltaTableState
from lakeward.lake.delta.meta.features import BY_NAME, WIDENING_KEY
from lakeward.model import TableInfo

_HIGHEST_ID, _TYPE_CHANGES = "delta.columnMapping.maxColumnId", "delta.typeChanges"


def evolve_metadata(
    state: DeltaTableState, table: TableInfo, columns: Sequence[StoredColumn], column_map: ColumnMap
) -> Action:
    """Builds the changed metadata. `configuration`: the properties that change. Raises `UnsupportedType`."""
    fields = json.loads(state.metadata["schemaString"])["fields"]
    by_key = {physical_name(f): f for f in fields if f["name"] not in SYSTEM}
    configuration: dict[str, str] = {}
    is_mapped = state.properties.get(MAPPING_KEY) == BY_NAME or _needs_mapping(columns, by_key, column_map)
    columns = list(_with_keys(columns, column_map, is_mapped=is_mapped))
    keys = {**column_map.keys, **{s.column.column_id: s.key for s in columns if s.column.column_id}}
    if any(s.column.column_id for s in columns):
        configuration |= ColumnMap(keys, column_map.schema_id or table.schema.schema_id).to_properties()
    spelled = [_evolved(one, by_key.get(one.key), str(table.path)) for one in columns]
    spelled += [f for f in fields if f["name"] in SYSTEM]
    if any(_TYPE_CHANGES in f["metadata"] for f in spelled):
        configuration[WIDENING_KEY] = "true"
    if is_mapped:
        highest = _number(spelled, int(state.properties.get(_HIGHEST_ID, "0")))
        configuration |= {MAPPING_KEY: BY_NAME, _HIGHEST_ID: str(highest)}
    names, old_keys = {s.key: s.column.name for s in columns}, {f["name"]: physical_name(f) for f in fields}
    return {
        "schemaString": json.dumps({"type": "struct", "fields": spelled}),
        "partitionColumns": [names.get(old_keys[c], c) for c in state.partition_columns],
        "configuration": configuration,
    }


def _needs_mapping(columns: Sequence[StoredColumn], by_key: dict[str, Any], column_map: ColumnMap) -> bool:
    """Whether a column is renamed or dropped, or a new column has the name of a dropped one."""
    is_renamed = any(s.key and s.column.name != by_key.get(s.key, {}).get("name", s.key) for s in columns)
    used = {*by_key, *column_map.keys.values()}
    is_taken = any(not s.key and s.column.name in used for s in columns)
    return is_renamed or is_taken or bool(by_key.keys() - {s.key for s in columns})


def _with_keys(columns: Sequence[StoredColumn], column_map: ColumnMap, *, is_mapped: bool) -> Iterator[StoredColumn]:
    """Gives new columns their names as keys while files are read by name."""
    if is_mapped:
        return iter(with_new_keys(columns, (f"col-{uuid.uuid4()}" for _ in itertools.count())))
    return (s if s.key else StoredColumn(s.column, s.column.name) for s in columns)


def _evolved(one: StoredColumn, old: dict[str, Any] | None, where: str) -> dict[str, Any]:
    field = new_field(one.column, where)
    metadata = {k: v for k, v in ((old or {}).get("metadata") or {}).items() if k != "comment"} | field["metadata"]
    if one.key != one.column.name:
        metadata[PHYSICAL_NAME] = one.key
    if old is None or _plain(old["type"]) == _plain(field["type"]):
        return {**field, "type": field["type"] if old is None else old["type"], "metadata": metadata}
    changes = [*metadata.get(_TYPE_CHANGES, ()), {"fromType": old["type"], "toType": field["type"]}]
    return {**field, "metadata": {**metadata, _TYPE_CHANGES: changes}}


def _plain(kind: Any) -> Any:
    """Returns a type without the metadata of nested fields."""
    if isinstance(kind, list):
        return [_plain(part) for part in kind]
    return {k: _plain(v) for k, v in kind.items() if k != "metadata"} if isinstance(kind, dict) else kind


def _number(fields: list[dict[str, Any]], highest: int) -> int:
    """Gives an id and a physical name to fields without one, nested fields included. Returns the highest id."""
    for field in fields:
        metadata = field.setdefault("metadata", {})
        if FIELD_ID not in metadata:
            highest += 1
            metadata[FIELD_ID] = highest
        metadata.setdefault(PHYSICAL_NAME, field["name"])
        highest = _number(list(_inner_fields(field["type"])), highest)
    return highest


def _inner_fields(kind: Any) -> Iterator[dict[str, Any]]:
    if isinstance(kind, dict):
        yield from kind.get("fields", ())
        for part in ("elementType", "keyType", "valueType"):
            yield from _inner_fields(kind.get(part))
