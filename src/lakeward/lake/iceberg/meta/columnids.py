# SPDX-License-Identifier: Apache-2.0
"""Which Iceberg field each column of a table is: a property of the lake table maps column ids to field ids.

A table that never changed its columns has no such property: there, and for columns that it does not name, names decide.
"""

from __future__ import annotations

import json

from pyiceberg.table.metadata import TableMetadata

from lakeward.model.schema import Schema

COLUMN_IDS = "lakeward.column-ids"


def find_field_ids(metadata: TableMetadata, schema: Schema) -> dict[int, int]:
    """Column id -> field id, of the columns that the lake table has."""
    by_name = {field.name: field.field_id for field in metadata.schema().fields}
    known = {int(c): f for c, f in json.loads(metadata.properties.get(COLUMN_IDS, "{}")).items()}
    there = set(by_name.values())
    field_ids = {c.column_id: known.get(c.column_id, by_name.get(c.name)) for c in schema.columns}
    return {column: field for column, field in field_ids.items() if field is not None and field in there}


def spell_field_ids(metadata: TableMetadata, schema: Schema) -> dict[str, str]:
    """The property, to be set in the commit that changes the columns."""
    return {COLUMN_IDS: json.dumps(find_field_ids(metadata, schema), separators=(",", ":"))}
