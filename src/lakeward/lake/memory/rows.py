# SPDX-License-Identifier: Apache-2.0
"""Which rows of a snapshot are live: its data files with position and key deletes applied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeward.lake.memory.table import DataFile, KeyDeletes, MemoryTable, PositionDeletes, Snapshot
from lakeward.model.bucket import Bucket
from lakeward.model.schema import OFFSET

Mask = npt.NDArray[np.bool_]


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
    """Per bucket the number of live rows and the highest live offset."""
    marks: dict[Bucket, tuple[int, int]] = {}
    for file in data_files(table, snapshot):
        offsets = live_rows(table, snapshot, file).column(OFFSET).to_numpy()
        if len(offsets):
            count, high = marks.get(file.bucket, (0, -1))
            marks[file.bucket] = (count + len(offsets), max(high, int(offsets.max())))
    return marks


def matching_keys(rows: pa.Table, keys: pa.Table) -> Mask:
    gone = {tuple(row.values()) for row in keys.to_pylist()}
    return np.fromiter(
        (tuple(row.values()) in gone for row in rows.select(keys.column_names).to_pylist()), np.bool_, rows.num_rows
    )


def _deletes_for(
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
