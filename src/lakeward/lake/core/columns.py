# SPDX-License-Identifier: Apache-2.0
"""Columns of lake tables: rows of older files under today's schema."""

from __future__ import annotations

import pyarrow as pa


def fit_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns that were added since are null."""
    have, count = set(rows.column_names), rows.num_rows
    columns = [
        pa.nulls(count, f.type)
        if f.name not in have
        else rows.column(f.name)
        if rows.column(f.name).type == f.type
        else rows.column(f.name).cast(f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
