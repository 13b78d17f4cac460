# SPDX-License-Identifier: Apache-2.0
"""A batch of rows in the columns that the lake table has now."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakeward.errors import LakeSchemaBroken
from lakeward.lake.partitionvalue import parse_partition_value
from lakeward.model.nestednulls import cast_values


def conform(rows: pa.Table, schema: pa.Schema, partition: Mapping[str, str], table: str) -> pa.Table:
    """By name, cast, a newer lake column filled with nulls, partition columns by their values. Raises
    `LakeSchemaBroken`."""
    names, arrays = set(rows.column_names), []
    for field in schema:
        if field.name in partition:
            text, is_text = partition[field.name], pa.types.is_string(field.type)
            value = text if is_text else parse_partition_value(text, field.type)
            arrays.append(pa.repeat(pa.scalar(value, field.type), rows.num_rows))
        elif field.name in names:
            column = rows.column(field.name)
            arrays.append(cast_values(column, field.type))
        elif field.nullable:
            arrays.append(pa.nulls(rows.num_rows, field.type))
        else:
            raise LakeSchemaBroken(table=table, diff=f"the batch has no column {field.name}")
    if lost := names - set(schema.names):
        raise LakeSchemaBroken(table=table, diff=f"the lake table has no column {', '.join(sorted(lost))}")
    return pa.Table.from_arrays(arrays, schema=schema)
