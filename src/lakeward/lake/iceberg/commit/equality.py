# SPDX-License-Identifier: Apache-2.0
"""Equality deletes: keys whose older rows go, for changelogs that do not say where a replaced row lies.

Such a delete reaches only files of earlier commits. Rows of the same round, written by an earlier sub-split or from a
KV snapshot, are found here by key and become positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from lakeward.lake.iceberg.commit.resolve import Hit
from lakeward.lake.iceberg.datafile.result import WrittenFile
from lakeward.lake.iceberg.meta.types import FIELD_ID, to_arrow_field
from lakeward.lake.iceberg.scan.deletefilter import matching_rows
from lakeward.model import Offsets, OffsetSet, cast_column

BATCH_ROWS = 262_144


def key_schema(schema: Schema) -> pa.Schema:
    """The identifier columns as files have them, in the order of their ids, which `equality_ids` follow."""
    return pa.schema([to_arrow_field(schema.find_field(i)) for i in key_ids(schema)])


def key_ids(schema: Schema) -> list[int]:
    return sorted(schema.identifier_field_ids)


def conform_keys(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    table = pa.Table.from_batches(batches)
    columns = [
        table.column(f.name) if table.column(f.name).type == f.type else cast_column(table.column(f.name), f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def find_same_round(io: FileIO, schema: Schema, keys: Sequence[WrittenFile], files: Sequence[Hit]) -> Iterator[Hit]:
    """Rows of `files`, all older than these keys and of the same round, that the keys delete. `files` come without
    positions.
    """
    if not keys or not files:
        return
    ids = key_ids(schema)
    deleted = pa.concat_tables([t for k in keys for t, _ in read_keys(io, k.path, ids)])
    for file in files:
        row_positions = [
            np.flatnonzero(matching_rows(table, deleted)) + start
            for table, start in read_keys(io, file.file.file_path, ids)
        ]
        positions: Offsets = np.concatenate(row_positions).astype(np.int64) if row_positions else np.empty(0, np.int64)
        if len(positions):
            yield Hit(file.file, file.spec_id, positions)


def merge_hits(hits: Sequence[Hit]) -> list[Hit]:
    """One per file: a row may be deleted by several later sub-splits."""
    by_path: dict[str, list[Hit]] = {}
    for hit in hits:
        by_path.setdefault(hit.file.file_path, []).append(hit)
    return [
        Hit(same[0].file, same[0].spec_id, OffsetSet(np.concatenate([h.positions for h in same])).values)
        for same in by_path.values()
    ]


def read_keys(io: FileIO, path: str, ids: Sequence[int]) -> Iterator[tuple[pa.Table, int]]:
    """Key columns with the position of the first row, by field id."""
    with io.new_input(path).open() as source:
        file = pq.ParquetFile(source)
        by_id = {int(f.metadata[FIELD_ID]): f.name for f in file.schema_arrow if f.metadata and FIELD_ID in f.metadata}
        if any(i not in by_id for i in ids):
            return  # from before the key was a column: no row of it was alive when the table was adopted
        names = [by_id[i] for i in ids]
        start = 0
        for batch in file.iter_batches(BATCH_ROWS, columns=names):
            yield pa.Table.from_batches([batch]).select(names), start
            start += batch.num_rows
