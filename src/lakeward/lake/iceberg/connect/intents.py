# SPDX-License-Identifier: Apache-2.0
"""Stores intents as small objects in the table's metadata folder, one per round: Fluss keeps no intents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow.fs as pafs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.location import metadata_folder
from lakeward.lake.iceberg.meta.ownpaths import check_path
from lakeward.model import Intent, IntentState, RoundId, TableId, TableInfo
from lakeward.protocol.codec import decode, encode
from lakeward.spi import ROUND_KEY, IntentStore

PREFIX = "lakeward-intent-"


class IcebergIntentStore(IntentStore):
    """Intents of one table. Their names have another prefix than our data and manifests, so that orphan removal ignores
    them."""

    def __init__(self, connection: IcebergConnection, table: TableInfo) -> None:
        self._connection, self._table = connection, table

    def record(self, intent: Intent) -> None:
        table = self._connection.load(self._table.path)
        with lake_errors(str(self._table.path), "record an intent of"):
            if not table.io.new_input(self._path(table, intent.round_id)).exists():
                self._write(table, intent)

    def abandon(self, round_id: RoundId) -> None:
        table = self._connection.load(self._table.path)
        with lake_errors(str(self._table.path), "abandon an intent of"):
            intent = _read(table.io, self._path(table, round_id))
            if intent is not None:
                self._write(table, replace(intent, state=IntentState.ABANDONED))

    def open_intents(self, table_id: TableId) -> Sequence[Intent]:
        """Lists intents. An intent whose round is in the lake counts as committed: its writer may have died before it
        recorded that."""
        table = self._connection.load(self._table.path)
        landed = {
            s.summary.additional_properties.get(ROUND_KEY) for s in table.metadata.snapshots if s.summary is not None
        }
        with lake_errors(str(self._table.path), "list intents of"):
            intents = [
                i
                for i in (_read(table.io, path) for path in self._list(table))
                if i is not None and i.table_id == table_id
            ]
        updated = [replace(i, state=IntentState.COMMITTED) if i.round_id in landed else i for i in intents]
        return sorted(updated, key=lambda i: i.recorded_at_ms)

    def forget(self, round_id: RoundId) -> None:
        table = self._connection.load(self._table.path)
        with lake_errors(str(self._table.path), "forget an intent of"), suppress(FileNotFoundError):
            table.io.delete(self._path(table, round_id))

    def _write(self, table: Table, intent: Intent) -> None:
        with table.io.new_output(self._path(table, intent.round_id)).create(overwrite=True) as out:
            out.write(json.dumps(encode(intent)).encode())

    def _path(self, table: Table, round_id: RoundId) -> str:
        return f"{metadata_folder(table.metadata.location, table.metadata.properties)}/{PREFIX}{round_id}.json"

    def _list(self, table: Table) -> list[str]:
        folder = metadata_folder(table.metadata.location, table.metadata.properties)
        filesystem, path = _filesystem(table.io, check_path(table.io, folder))
        listed = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return [f"{folder}/{f.base_name}" for f in listed if f.base_name.startswith(PREFIX)]


def _filesystem(io: FileIO, folder: str) -> tuple[pafs.FileSystem, str]:
    scheme, netloc, path = PyArrowFileIO.parse_location(folder)
    file_io = io if isinstance(io, PyArrowFileIO) else PyArrowFileIO(io.properties)
    return file_io.fs_by_scheme(scheme, netloc), path


def _read(io: FileIO, path: str) -> Intent | None:
    """Reads an intent; None if it does not exist, or a crash left it incomplete."""
    try:
        with io.new_input(path).open() as source:
            return decode(Intent, json.loads(source.read()))
    except (FileNotFoundError, ValueError):
        return None
