# SPDX-License-Identifier: Apache-2.0
"""Which rows of a snapshot are live: its data files with position and key deletes applied."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeward.lake.memory.table import DataFile, KeyDeletes, MemoryTable, PositionDeletes, Snapshot
from lakeward.model.bucket import Bucket
from lakeward.model.offsetset import OffsetSet
from lakeward.model.schema import OFFSET

Mask = npt.NDArray[np.bool_]


def data_files(table: MemoryTable, snapshot: Snapshot, bucket: Bucket | None = None) -> Iterator[DataFile]:
    for path in sorted(snapshot.data):
        file = table.data_file(path)
        if bucket is None or file.bucket == bucket:
            yield file


def deletes_for(
    table: MemoryTable, snapshot: Snapshot, file: DataFile
) -> Iterator[tuple[int, PositionDeletes | KeyDeletes]]:
    """(sequence, delete file) of everything that takes rows from this data file."""
    added = snapshot.data[file.path]
    for path, sequence in sorted(snapshot.deletes.items()):
        match table.files[path]:
            case PositionDeletes() as delete if delete.data_path == file.path:
                yield sequence, delete
            case KeyDeletes() as delete if delete.bucket == file.bucket and sequence > added:
                yield sequence, delete


def live_mask(table: MemoryTable, snapshot: Snapshot, file: DataFile) -> Mask:
    keep = np.ones(file.rows.num_rows, np.bool_)
    for _, delete in deletes_for(table, snapshot, file):
        if isinstance(delete, PositionDeletes):
            keep[delete.positions.values] = False
        else:
            keep &= ~matching_keys(file.rows, delete.keys)
    return keep


def live_rows(table: MemoryTable, snapshot: Snapshot, file: DataFile) -> pa.Table:
    return file.rows.filter(pa.array(live_mask(table, snapshot, file)))


def count_live(table: MemoryTable, snapshot: Snapshot) -> int:
    return sum(int(live_mask(table, snapshot, f).sum()) for f in data_files(table, snapshot))


def high_marks(table: MemoryTable, snapshot: Snapshot) -> dict[Bucket, tuple[int, int]]:
    """Per bucket the number of live rows and the highest live offset."""
    marks: dict[Bucket, tuple[int, int]] = {}
    for file in data_files(table, snapshot):
        offsets = live_rows(table, snapshot, file).column(OFFSET).to_numpy()
        if len(offsets):
            count, high = marks.get(file.bucket, (0, -1))
            marks[file.bucket] = (count + len(offsets), max(high, int(offsets.max())))
    return marks


def find_positions(file: DataFile, wanted: OffsetSet) -> tuple[OffsetSet, OffsetSet]:
    """(offsets of `wanted` that the file holds, their positions); the file may be in any order."""
    offsets = file.rows.column(OFFSET).to_numpy()
    positions = np.flatnonzero(wanted.mask(offsets))
    return OffsetSet(offsets[positions]), OffsetSet(positions)


def matching_keys(rows: pa.Table, keys: pa.Table) -> Mask:
    gone = {tuple(row.values()) for row in keys.to_pylist()}
    return np.fromiter(
        (tuple(row.values()) in gone for row in rows.select(keys.column_names).to_pylist()), np.bool_, rows.num_rows
    )
