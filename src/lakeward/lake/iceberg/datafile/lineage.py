# SPDX-License-Identifier: Apache-2.0
"""Row lineage (format version 3): which row a row is, and which commit changed it last, kept through rewrites.

A file whose rows are all new says neither: rows are counted on from the file's first row id. A rewritten file has both
as columns under Iceberg's reserved ids.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakeward.spi import LakeFile

ROW_ID = NestedField(2147483540, "_row_id", LongType(), required=False)
UPDATED = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)


def with_lineage(schema: Schema) -> Schema:
    """The table's columns and the two of lineage."""
    return Schema(
        *schema.fields,
        ROW_ID,
        UPDATED,
        schema_id=schema.schema_id,
        identifier_field_ids=schema.identifier_field_ids,
    )


def fill_lineage(rows: pa.Table, file: LakeFile, start: int) -> pa.Table:
    """Values that the file leaves out. `start` is the position of the first row in its file. A file that nobody gave a
    row id yet keeps nulls: its rows are counted from the new file's."""
    for name, values in (
        (ROW_ID.name, _row_ids(file, start, rows.num_rows)),
        (UPDATED.name, pa.scalar(file.sequence, pa.int64())),
    ):
        if values is not None:
            column = rows.column_names.index(name)
            rows = rows.set_column(column, name, pc.coalesce(rows.column(column), values))
    return rows


def _row_ids(file: LakeFile, start: int, count: int) -> pa.Array | None:
    if file.first_row_id is None:
        return None
    return pa.array(np.arange(file.first_row_id + start, file.first_row_id + start + count, dtype=np.int64))
