# SPDX-License-Identifier: Apache-2.0
"""A file's columns as today's lake schema has them: found by field id, cast, null where the file is older."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema

from lakeward.lake.iceberg.meta.types import FIELD_ID


def names_by_id(file: pa.Schema) -> dict[int, str]:
    """A file's columns by their field ids."""
    return {int(f.metadata[FIELD_ID]): f.name for f in file if f.metadata and FIELD_ID in f.metadata}


def physical_names(schema: Schema, by_id: Mapping[int, str], names: Sequence[str]) -> dict[str, str | None]:
    """Lake column -> the file's name of it by field id; None where the file is older than the column."""
    return {n: by_id.get(schema.find_field(n).field_id) for n in names}


def project(
    batch: pa.RecordBatch, names: Sequence[str], physical: Mapping[str, str | None], types: Mapping[str, pa.DataType]
) -> pa.Table:
    """Columns that were read as numbers of a dictionary stay so until `decode`."""
    arrays = []
    for name in names:
        source, kind = physical[name], types[name]
        array = pa.nulls(batch.num_rows, kind) if source is None else batch.column(source)
        arrays.append(array if array.type == kind or pa.types.is_dictionary(array.type) else array.cast(kind))
    return pa.table(arrays, names=list(names))


def decode(rows: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    for at, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(at, field.name, rows.column(at).cast(types[field.name]))
    return rows
