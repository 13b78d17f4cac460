# SPDX-License-Identifier: Apache-2.0
"""Columns of lake tables: rows of older files under today's schema."""

from __future__ import annotations

import pyarrow as pa

from lakeward.model.nestednulls import cast_values


def fit_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns that were added since are null."""
    have, count = set(rows.column_names), rows.num_rows
    columns = [cast_values(rows.column(f.name), f.type) if f.name in have else pa.nulls(count, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)
