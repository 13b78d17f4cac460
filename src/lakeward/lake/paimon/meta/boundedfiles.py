# SPDX-License-Identifier: Apache-2.0
"""Storage for Paimon's library that reads metadata as far as the lake's bounds allow, and regular files alone."""

from __future__ import annotations

import os
import stat
from io import BytesIO
from typing import Any

from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO

from lakeward.lake.metadatabounds import MetadataBounds
from lakeward.lake.s3files import files_of
from lakeward.lake.tablefiles import plain_path


class _Bounded:
    """Of a catalog: by it the library reads schemas, which are text."""

    bounds: MetadataBounds
    plain: Any
    """The same without bounds: the native library knows its kind."""

    def read_file_utf8(self, path: str) -> str:
        with self.new_input_stream(path) as source:
            data: bytes = source.read(self.bounds.limit + 1)
        self.bounds.check_packed(path, len(data))
        return data.decode()

    def new_input_stream(self, path: str) -> Any:
        return super().new_input_stream(path)  # type: ignore[misc]


class _BoundedLocal(_Bounded, LocalFileIO):  # type: ignore[misc]
    def new_input_stream(self, path: str) -> Any:
        """A pipe would be waited for without end."""
        file = self._to_file(path)
        if file.exists() and not stat.S_ISREG(os.stat(file).st_mode):
            raise OSError(f"{path} is no regular file")
        return super().new_input_stream(path)


class _BoundedRemote(_Bounded, PyArrowFileIO):  # type: ignore[misc]
    pass


_BOUNDED = {LocalFileIO: _BoundedLocal, PyArrowFileIO: _BoundedRemote}


def bounded(file_io: Any, bounds: MetadataBounds) -> Any:
    """The same storage with bounds; one of another kind as it is."""
    kind = _BOUNDED.get(type(file_io))
    if kind is None:
        return file_io
    copied = kind.__new__(kind)
    copied.__dict__.update(file_io.__dict__, bounds=bounds, plain=file_io)
    return copied


def with_plain_files(lake_table: Any) -> Any:
    """Rows are read and written by the native library; later schemas are read with bounds still."""
    lake_table.file_io = getattr(lake_table.file_io, "plain", lake_table.file_io)
    return lake_table


class BoundedManifests:
    """Of one table, for those classes of the library that read manifests, their lists and index manifests."""

    def __init__(self, lake_table: Any) -> None:
        self._files, self._storage = files_of(lake_table), lake_table.file_io

    def __getattr__(self, name: str) -> Any:
        """What writes and deletes."""
        return getattr(self._storage, name)

    def new_input_stream(self, path: str) -> BytesIO:
        """Raises `LakeMetadataTooLarge`, `LakePathRefused`, `OSError`, `ValueError`."""
        place = plain_path(path)
        data = self._files.read_bytes(place)
        if data is None:
            raise FileNotFoundError(place)
        self._files.bounds.check_avro(place, data)
        return BytesIO(data)
