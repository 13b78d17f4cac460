# SPDX-License-Identifier: Apache-2.0
"""Deletes as a reader applies them: positions, keys, deletion vectors."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField
from pyroaring import BitMap64

from lakeward.errors import LakeTampered
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter, Keeper, matching_rows
from lakeward.lake.iceberg.scan.files import IndexedFile
from lakeward.lake.iceberg.scan.snapshotfiles import DeleteEntry, PlannedFile, _applies
from lakeward.model import OffsetSet

SCHEMA = Schema(NestedField(1, "k", LongType()))


def vector_file(folder: Path, positions: list[int], *, broken: bool = False) -> DataFile:
    """A Puffin file's deletion vector, as version 3 lays it out; what stands around the blob is not read."""
    payload = b"\xd1\xd3\x39\x64" + BitMap64(positions).serialize()
    blob = struct.pack(">i", len(payload) + (1 if broken else 0)) + payload + struct.pack(">I", zlib.crc32(payload))
    (folder / "v.puffin").write_bytes(b"PFA1" + blob + b"PFA1")
    return DataFile.from_args(
        _table_format_version=3,
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{folder}/v.puffin",
        file_format=FileFormat.PUFFIN,
        partition=Record(),
        record_count=len(positions),
        referenced_data_file="file:///data.parquet",
        content_offset=4,
        content_size_in_bytes=len(blob),
    )


def planned(*deletes: DeleteEntry) -> PlannedFile:
    data = DataFile.from_args(file_path="file:///data.parquet", partition=Record())
    entry = ManifestEntry(ManifestEntryStatus.ADDED, 1, 1, 1, data)
    return PlannedFile(IndexedFile(entry, 0, None, None, None), deletes, {}, SCHEMA)


def test_a_deletion_vector(tmp_path: Path) -> None:
    delete = DeleteEntry(vector_file(tmp_path, [0, 3, 70_000]), 0, 2)
    assert (delete.content, delete.content_offset, delete.referenced) == ("vector", 4, "file:///data.parquet")
    assert _applies(delete, 1, "file:/data.parquet")
    assert not _applies(delete, 1, "file:///other.parquet")
    keeper = DeleteFilter(PyArrowFileIO({}), SCHEMA).of(planned(delete))
    rows = pa.table({"k": pa.array(range(5))})
    mask = keeper.mask(rows, 0)
    assert mask is not None
    assert mask.tolist() == [False, True, True, False, True]
    later = keeper.mask(rows, 69_998)
    assert later is not None
    assert later.tolist() == [True, True, False, True, True]


def test_a_vector_that_is_not_whole_is_named(tmp_path: Path) -> None:
    delete = DeleteEntry(vector_file(tmp_path, [1], broken=True), 0, 2)
    with pytest.raises(LakeTampered, match="deletion vector"):
        DeleteFilter(PyArrowFileIO({}), SCHEMA).of(planned(delete))


def test_positions_of_several_delete_files_in_whatever_order_they_stand(tmp_path: Path) -> None:
    """The spec wants them sorted, which not everybody keeps to; and paths are spelled in several ways."""
    deletes = []
    for number, rows in enumerate([[("file:/data.parquet", 4), ("file:/data.parquet", 1)], [("/data.parquet", 2)]]):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"file_path": [p for p, _ in rows], "pos": [at for _, at in rows]}), path)
        file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=f"file://{path}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=len(rows),
        )
        deletes.append(DeleteEntry(file, 0, 2))
    filters = DeleteFilter(PyArrowFileIO({}), SCHEMA)
    for some, alive in ((deletes, [True, False, False, True, False]), (deletes[:1], [True, False, True, True, False])):
        keeper = filters.of(planned(*some))
        first, last = (keeper.mask(pa.table({"k": [0] * n}), at) for n, at in ((3, 0), (2, 3)))
        assert first is not None
        assert last is not None
        assert [*first, *last] == alive


def test_keys_match_with_nulls_and_over_several_columns() -> None:
    rows = pa.table({"a": [1, 1, None, 2, None], "b": ["x", "y", "x", None, None]})
    deleted = pa.table({"a": [1, None, None], "b": ["y", "x", None]})
    assert matching_rows(rows, deleted).tolist() == [False, True, True, False, True]


def test_offsets_whose_positions_are_not_known_are_looked_up_in_each_batch() -> None:
    """A file that carries no bounds of its offsets, or is too big for having all of them loaded."""
    keeper = DeleteFilter(PyArrowFileIO({}), SCHEMA).of(planned(), OffsetSet([11, 13, 99]))
    assert keeper.columns == ("__offset",)
    mask = keeper.mask(pa.table({"__offset": [10, 11, 12, 13]}), 500)
    assert mask is not None
    assert mask.tolist() == [True, False, True, False]


def test_no_deletes_mean_no_mask() -> None:
    assert Keeper(np.empty(0, np.int64), []).mask(pa.table({"k": [1]}), 0) is None


@pytest.mark.parametrize(("sequence", "applies"), [(1, True), (2, False), (3, False)])
def test_keys_delete_strictly_older_files(sequence: int, applies: bool) -> None:
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES, file_path="d", file_format=FileFormat.PARQUET, equality_ids=[1]
    )
    assert _applies(DeleteEntry(file, 0, 2), sequence, "any") is applies
