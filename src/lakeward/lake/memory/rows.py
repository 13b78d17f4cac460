# SPDX-License-Identifier: Apache-2.0
"""Live rows of a snapshot: its data files with position and key deletes applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeward.lake.memory.table import DataFile, KeyDeletes, MemoryTable, PositionDeletes, Snapshot
from lakeward.model import LAKE_FIELDS, OFFSET, Bucket, Column, Schema, cast_values, missing_values, to_arrow_field

Mask = npt.NDArray[np.bool_]
_ID = b"column-id"


@dataclass(frozen=True)
class LiveFile:
    """A data file with its sequence number, and the delete files that apply to it with theirs."""

    file: DataFile
    sequence: int
    deletes: tuple[tuple[int, PositionDeletes | KeyDeletes], ...] = ()

    def live_mask(self) -> Mask:
        keep = np.ones(self.file.rows.num_rows, np.bool_)
        for _, delete in self.deletes:
            if isinstance(delete, PositionDeletes):
                keep[delete.positions.values] = False
            else:
                keep &= ~matching_keys(self.file.rows, delete.keys)
        return keep


def live_files(table: MemoryTable, snapshot: Snapshot) -> list[LiveFile]:
    files = data_files(table, snapshot)
    return [LiveFile(f, snapshot.data[f.path], tuple(_deletes_for(table, snapshot, f))) for f in files]


def data_files(table: MemoryTable, snapshot: Snapshot) -> Iterator[DataFile]:
    return (table.data_file(path) for path in sorted(snapshot.data))


def live_mask(table: MemoryTable, snapshot: Snapshot, file: DataFile) -> Mask:
    return LiveFile(file, 0, tuple(_deletes_for(table, snapshot, file))).live_mask()


def live_rows(table: MemoryTable, snapshot: Snapshot, file: DataFile) -> pa.Table:
    return file.rows.filter(pa.array(live_mask(table, snapshot, file)))


def live_rows_of(file: LiveFile) -> pa.Table:
    return file.file.rows.filter(pa.array(file.live_mask()))


def high_marks(table: MemoryTable, snapshot: Snapshot) -> dict[Bucket, tuple[int, int]]:
    """Returns, per bucket, the number of live rows and the highest live offset."""
    marks: dict[Bucket, tuple[int, int]] = {}
    for file in data_files(table, snapshot):
        offsets = live_rows(table, snapshot, file).column(OFFSET).to_numpy()
        if len(offsets):
            count, high = marks.get(file.bucket, (0, -1))
            marks[file.bucket] = (count + len(offsets), max(high, int(offsets.max())))
    return marks


def matching_keys(rows: pa.Table, keys: pa.Table) -> Mask:
    """Marks the rows whose keys are in `keys`. Key columns are matched by column id."""
    deleted = {tuple(row.values()) for row in keys.to_pylist()}
    in_rows = fit_by_id(rows, keys.schema).to_pylist()
    return np.fromiter((tuple(row.values()) in deleted for row in in_rows), np.bool_, rows.num_rows)


def view_columns(table: MemoryTable, planned: Schema) -> list[Column]:
    """Returns the table's columns with the names and types of one of its schemas, older or newer; columns that this
    schema lacks come last."""
    ours = [c for c in planned.columns if c.column_id in table.known]
    others = [c for c in table.columns if c.column_id not in planned.by_id]
    names = {c.name for c in ours}
    return [*ours, *(replace(c, name=f"{c.name}#{c.column_id}") if c.name in names else c for c in others)]


def tagged_schema(columns: Iterable[Column]) -> pa.Schema:
    """Schema of the columns with their ids, and the system columns."""
    columns = tuple(columns)
    fields = [to_arrow_field(c) for c in columns]
    ids = (str(c.column_id) for c in columns)
    fields = [f.with_metadata({**(f.metadata or {}), _ID: i}) for f, i in zip(fields, ids, strict=True)]
    return pa.schema([*fields, *LAKE_FIELDS])


def tag_columns(rows: pa.Table, ids: Mapping[str, int]) -> pa.Table:
    """Adds column ids to the rows' fields, as files have them."""
    fields = [f.with_metadata({_ID: str(ids[f.name])}) if f.name in ids else f for f in rows.schema]
    return pa.Table.from_arrays(rows.columns, schema=pa.schema(fields))


def fit_by_id(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Fits a file's rows to a tagged schema and casts them; columns newer than the file have their default. Fields
    without an id are matched by name."""
    by_id = {f.metadata[_ID]: i for i, f in enumerate(rows.schema) if f.metadata and _ID in f.metadata}
    untagged = {f.name: i for i, f in enumerate(rows.schema) if not (f.metadata and _ID in f.metadata)}
    arrays = []
    for field in schema:
        at = by_id.get((field.metadata or {}).get(_ID, b""), untagged.get(field.name))
        missing = at is None
        arrays.append(missing_values(field, rows.num_rows) if missing else cast_values(rows.column(at), field.type))
    return pa.Table.from_arrays(arrays, schema=pa.schema([f.remove_metadata() for f in schema]))


def _deletes_for(
    table: MemoryTable, snapshot: Snapshot, file: DataFile
) -> Iterator[tuple[int, PositionDeletes | KeyDeletes]]:
    """Returns (sequence, delete file) for each delete that applies to this data file."""
    added = snapshot.data[file.path]
    for path, sequence in sorted(snapshot.deletes.items()):
        match table.files[path]:
            case PositionDeletes() as delete if delete.data_path == file.path:
                yield sequence, delete
            case KeyDeletes() as delete if delete.bucket == file.bucket and sequence > added:
                yield sequence, delete
