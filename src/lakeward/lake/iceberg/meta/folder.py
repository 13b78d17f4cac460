# SPDX-License-Identifier: Apache-2.0
"""Lists a folder and deletes a file, wherever PyIceberg's storage reaches."""

from __future__ import annotations

from collections.abc import Iterator

from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakeward.lake.iceberg.meta.location import CACHE_SUFFIX, canonical
from lakeward.spi import StoredFile


def list_folder(io: PyArrowFileIO, folder: str) -> Iterator[StoredFile]:
    filesystem, path = _filesystem(io, folder)
    root = canonical(folder)
    for info in filesystem.get_file_info(FileSelector(path, allow_not_found=True, recursive=False)):
        if info.type == FileType.File and not info.base_name.endswith(CACHE_SUFFIX):
            modified = info.mtime_ns // 1_000_000 if info.mtime_ns is not None else 0
            yield StoredFile(path=f"{root}/{info.base_name}", size_bytes=info.size, modified_at_ms=modified)


def delete_file(io: PyArrowFileIO, path: str) -> int:
    """Bytes freed; 0 when the file is gone already."""
    filesystem, name = _filesystem(io, path)
    info = filesystem.get_file_info(name)
    if info.type == FileType.NotFound:
        return 0
    try:
        filesystem.delete_file(name)
    except FileNotFoundError:
        return 0
    return int(info.size or 0)


def _filesystem(io: PyArrowFileIO, path: str) -> tuple[FileSystem, str]:
    scheme, netloc, name = io.parse_location(path, io.properties)
    return io.fs_by_scheme(scheme, netloc), name
