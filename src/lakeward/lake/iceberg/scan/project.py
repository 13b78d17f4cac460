# SPDX-License-Identifier: Apache-2.0
"""Projects a file's columns to the current lake schema: matched by field id, cast, the default in older files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from lakeward.lake.iceberg.meta.types import FIELD_ID
from lakeward.lake.kept import Kept
from lakeward.model import cast_column, cast_fields, cast_values

_FEW_ROWS = 8_192


def names_by_id(file: pa.Schema) -> dict[int, str]:
    """Returns a file's columns by their field ids."""
    return {int(f.metadata[FIELD_ID]): f.name for f in file if f.metadata and FIELD_ID in f.metadata}


def physical_names(ids: Mapping[str, int], by_id: Mapping[int, str], names: Sequence[str]) -> dict[str, str | None]:
    """Lake column -> its name in the file, by field id; None if the file is older than the column. `ids`: the lake
    columns'."""
    return {n: by_id.get(ids[n]) for n in names}


def ids_by_name(schema: Schema) -> dict[str, int]:
    return {f.name: f.field_id for f in schema.fields}


def project(
    batch: pa.RecordBatch,
    names: Sequence[str],
    physical: Mapping[str, str | None],
    types: Mapping[str, pa.DataType],
    missing: Mapping[str, pa.Scalar],
) -> pa.Table:
    """Projects a batch. `missing`: values of columns that the file does not have; null for others. Columns read as
    dictionary codes stay encoded until `decode`."""
    arrays = []
    for name in names:
        source, kind = physical[name], types[name]
        if source is not None:
            array = batch.column(source)
        else:
            array = pa.repeat(missing.get(name, pa.scalar(None, kind)), batch.num_rows)
        arrays.append(array if pa.types.is_dictionary(array.type) else _fit(array, kind))
    return pa.table(arrays, names=list(names))


def _fit(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Fields of structs are found by their ids too."""
    if not kind.num_fields or array.type.equals(kind, check_metadata=True) or not _has_ids(array.type):
        return cast_values(array, kind)
    return cast_fields(array, array.type, kind, FIELD_ID)


def _has_ids(kind: pa.DataType) -> bool:
    fields = [kind.field(at) for at in range(kind.num_fields)]
    if pa.types.is_struct(kind) and any(FIELD_ID not in (f.metadata or {}) for f in fields):
        return False
    return all(_has_ids(f.type) for f in fields)


def keep_rows(rows: pa.Table, keep: npt.NDArray[np.bool_]) -> pa.Table:
    """Filters many rows column by column: `pa.Table.filter` looks up every row by its number, which takes twice as long
    if it removes few rows. Few rows are filtered with one call instead of one for each column."""
    if len(keep) < _FEW_ROWS:
        return rows.filter(pa.array(keep))
    bits = pa.py_buffer(np.packbits(keep, bitorder="little"))
    mask = pa.Array.from_buffers(pa.bool_(), len(keep), [None, bits])
    return pa.Table.from_arrays([c.filter(mask) for c in rows.columns], schema=rows.schema)


def decode(rows: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    for at, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(at, field.name, cast_column(rows.column(at), types[field.name]))
    return rows


_CODED_BYTES = 3
"""The most bytes per value of a dictionary-encoded column: a plain text takes four bytes and its letters, a dictionary
code less than three."""

_CODED_ROWS = 10_000


@dataclass(frozen=True)
class Footer:
    """Facts of one file. `names`: columns by field id. `coded`: text columns that are dictionary-encoded in every row
    group. Reading them encoded takes two thirds of the time to filter and decode rows."""

    metadata: pq.FileMetaData
    names: Mapping[int, str]
    coded: frozenset[str]

    @classmethod
    def load(cls, path: str, source: Any) -> Footer:
        """`source`: the open file, read if its footer is not cached."""
        return _FOOTERS.load(path, lambda: cls.of(pq.read_metadata(source)))

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> Footer:
        schema = metadata.schema.to_arrow_schema()
        return cls(metadata, names_by_id(schema), frozenset(_coded(metadata, schema)))


def _coded(metadata: pq.FileMetaData, schema: pa.Schema) -> list[str]:
    if metadata.num_rows < _CODED_ROWS:
        return []
    texts = {f.name for f in schema if f.type == pa.string()}
    leaves = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
    return [n for n in texts if n in leaves and all(_is_coded(g.column(leaves[n])) for g in groups)]


def _is_coded(chunk: pq.ColumnChunkMetaData) -> bool:
    is_small: bool = chunk.total_uncompressed_size <= _CODED_BYTES * chunk.num_values
    return chunk.has_dictionary_page and is_small


_FOOTERS: Kept[Footer] = Kept(64_000_000, lambda footer: footer.metadata.serialized_size)
