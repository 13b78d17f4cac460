# SPDX-License-Identifier: Apache-2.0
"""Files of one Iceberg table: listed in its data and metadata folders, deleted, probed."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from lakeward.lake.core.files import StoredFiles
from lakeward.lake.core.table import LakeTable
from lakeward.lake.iceberg.changes import IcebergChanges
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.datafile.result import WriteHandle
from lakeward.lake.iceberg.log import IcebergSnapshotLog
from lakeward.lake.iceberg.meta.diff import check_fits
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.location import (
    OURS,
    cache_path,
    carries,
    data_folder,
    delete_file,
    is_live,
    list_folder,
    metadata_folder,
    round_prefix,
)
from lakeward.lake.iceberg.meta.ownpaths import check_path
from lakeward.model import RoundId, TableInfo
from lakeward.spi import PROBE, DeleteEncoding, StoredFile


class IcebergFiles(StoredFiles[IcebergGround]):
    def __init__(self, connection: IcebergConnection, info: TableInfo, log: IcebergSnapshotLog) -> None:
        self._connection, self._info, self._log = connection, info, log
        self._table: Table | None = None

    def handle(self, ground: IcebergGround, round_id: RoundId) -> bytes:
        check_fits(self._info, ground.table.metadata)
        self._table = ground.table
        return WriteHandle.of(ground.table).to_bytes()

    def prefix(self, round_id: RoundId) -> str:
        """Returns the prefix in the data folder; names of the round's manifests in the metadata folder begin with the
        same text."""
        metadata = self._known_table().metadata
        return f"{data_folder(metadata.location, metadata.properties)}/{round_prefix(round_id)}"

    def _known_table(self) -> Table:
        """Returns the table as last loaded: the place of its files does not change."""
        if self._table is None:
            self._table = self._log.load().table
        return self._table

    def list_files(self, prefix: str | None) -> Iterable[StoredFile]:
        """Lists files by name in both folders: our manifests and manifest lists, and, without a prefix, metadata files
        that our own catalog wrote, as a crash may leave one that never became the table's. Files of live snapshots are
        listed by their prefix only."""
        metadata, files = self._list()
        mark = self._log.mark(metadata) if prefix is None else None
        name = (prefix or "").rpartition("/")[2] or OURS
        return [
            f
            for f in files
            if (f.name.startswith(name) and (prefix is not None or not is_live(f.name)))
            or (mark is not None and carries(f.path, mark))
        ]

    def list_by_prefix(self, prefixes: Sequence[str]) -> Mapping[str, Sequence[StoredFile]]:
        names = {prefix.rpartition("/")[2]: prefix for prefix in prefixes}
        by_prefix: dict[str, list[StoredFile]] = {prefix: [] for prefix in prefixes}
        lengths = {len(name) for name in names}
        for file in self._list()[1] if prefixes else ():
            for prefix in {names[file.name[:n]] for n in lengths if file.name[:n] in names}:
                by_prefix[prefix].append(file)
        return by_prefix

    def _list(self) -> tuple[TableMetadata, list[StoredFile]]:
        table = self._table = self._log.load().table
        metadata, io = table.metadata, self._arrow_io(table)
        folders = {f(metadata.location, metadata.properties) for f in (data_folder, metadata_folder)}
        with lake_errors(str(self._info.path), "list files of"):
            own = sorted(check_path(table.io, folder) for folder in folders)
            return metadata, [file for folder in own for file in list_folder(io, folder)]

    def delete(self, path: str) -> int:
        """Deletes a file, and the offset cache of a data file with it."""
        table = self._known_table()
        check_path(table.io, path)
        io = self._arrow_io(table)
        with lake_errors(str(self._info.path), "delete a file of"):
            freed = delete_file(io, path)
            return freed + (delete_file(io, cache_path(path)) if path.endswith(".parquet") else 0)

    def probe(self) -> None:
        table = self._log.load().table
        metadata, io = table.metadata, self._arrow_io(table)
        folder = check_path(table.io, data_folder(metadata.location, metadata.properties))
        path = f"{folder}/{PROBE}{uuid.uuid4().hex}"
        with lake_errors(str(self._info.path), "write and delete a probe file of"):
            with io.new_output(path).create() as out:
                out.write(b"lakeward doctor --probe")
            delete_file(io, path)

    def _arrow_io(self, table: Table) -> PyArrowFileIO:
        return PyArrowFileIO({**table.io.properties, **self._connection.options})


ENCODINGS = frozenset({DeleteEncoding.POSITIONS, DeleteEncoding.EQUALITY})


def open_table(connection: IcebergConnection, log: IcebergSnapshotLog, info: TableInfo) -> LakeTable[IcebergGround]:
    files, changes = IcebergFiles(connection, info, log), IcebergChanges(connection, info, log)
    return LakeTable(info, log, files, changes, ENCODINGS)
