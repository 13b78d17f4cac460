# SPDX-License-Identifier: Apache-2.0
"""A table's files in a folder or in an object store. A file that is a commit is created only if its name is free."""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property

import pyarrow as pa
import pyarrow.fs as fs

from lakeward.lake.metadatabounds import MetadataBounds
from lakeward.spi import PROBE, StoredFile


class TableFiles(ABC):
    """Files of a table. Paths are absolute: `/folder/name`, `s3://bucket/name`. All calls raise `OSError` for errors of
    storage."""

    bounds = MetadataBounds()

    @property
    @abstractmethod
    def filesystem(self) -> fs.FileSystem:
        """The file system for rows: files that are read in parts, and written as they grow."""

    def read(self, path: str) -> str | None:
        data = self.read_bytes(path)
        return None if data is None else data.decode()

    @abstractmethod
    def read_bytes(self, path: str, limit: int | None = None) -> bytes | None:
        """Reads a file; None if it does not exist. `limit`: reads at most this many bytes of a longer file."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Lists names in a folder, not in folders below it; none if the folder does not exist."""

    def has_folder(self, folder: str) -> bool:
        """Whether the folder exists. An object store has no folders that could be missing."""
        return True

    @abstractmethod
    def put_exclusively(self, path: str, data: str | bytes) -> bool:
        """Creates a file in one step; false if it exists."""

    @abstractmethod
    def put(self, path: str, data: str | bytes) -> None:
        """Writes a file in one step; replaces an existing one."""

    @abstractmethod
    def delete(self, path: str) -> int:
        """Deletes a file; returns the bytes freed, 0 if it does not exist."""

    def remove_folder(self, folder: str) -> None:
        """Deletes a folder with its contents. Safe to repeat."""
        for file in self.walk(folder):
            self.delete(file.path)

    @abstractmethod
    def made_at(self, path: str) -> int | None:
        """Returns the time of the file's creation by the storage's own clock; only the order counts."""

    @abstractmethod
    def modified_at_ms(self, path: str) -> int | None: ...

    @abstractmethod
    def stamp(self, path: str) -> str | None:
        """Identifies the file under this name: another file gets another stamp. None if no file exists."""

    @abstractmethod
    def walk(self, folder: str) -> Iterator[StoredFile]: ...

    def probe(self, folder: str, name: str = PROBE) -> None:
        """Writes and deletes a small file whose name begins with `name`. Safe to repeat."""
        path = f"{folder}/{name}{uuid.uuid4().hex}"
        self.put(path, "lakeward")
        self.delete(path)

    def check(self, path: str) -> str:
        """Returns the same path if the table's files may be there (`AllowedFiles`)."""
        return path

    def open_input(self, path: str) -> pa.NativeFile:
        return self.filesystem.open_input_file(inside(path))

    def open_metadata(self, path: str) -> pa.NativeFile:
        """Raises `LakeMetadataTooLarge`."""
        source = self.open_input(path)
        self.bounds.check_packed(path, source.size())
        return source

    def open_output(self, path: str) -> pa.NativeFile:
        """Opens a file for writing. Readers may see nothing or a part of it until it is closed: for files that a commit
        names later."""
        return self.filesystem.open_output_stream(inside(path))


class LocalFiles(TableFiles):
    @cached_property
    def filesystem(self) -> fs.FileSystem:
        return fs.LocalFileSystem()

    def open_output(self, path: str) -> pa.NativeFile:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return super().open_output(path)

    def read_bytes(self, path: str, limit: int | None = None) -> bytes | None:
        """Opens a regular file: reading a pipe could block, and devices are not read."""
        try:
            with open(path, "rb", opener=_open_at_once) as source:
                if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                    raise OSError(f"{path} is not a regular file")
                return source.read(-1 if limit is None else limit)
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        with suppress(FileNotFoundError):
            return os.listdir(folder)
        return []

    def has_folder(self, folder: str) -> bool:
        return os.path.isdir(folder)

    def put_exclusively(self, path: str, data: str | bytes) -> bool:
        """Creates a file with link(2)."""
        staged = _stage(path, _bytes(data))
        try:
            os.link(staged, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(staged)
        sync([path])
        return True

    def put(self, path: str, data: str | bytes) -> None:
        os.replace(_stage(path, _bytes(data)), path)

    def delete(self, path: str) -> int:
        with suppress(FileNotFoundError):
            size = os.path.getsize(path)
            os.unlink(path)
            return size
        return 0

    def remove_folder(self, folder: str) -> None:
        """Removes the name first, so that no reader sees a part of the file."""
        parent, name = os.path.split(folder.rstrip("/"))
        aside = os.path.join(parent, f".{name}.dropped-{uuid.uuid4().hex}")
        with suppress(FileNotFoundError):
            os.rename(folder, aside)
            shutil.rmtree(aside)

    def made_at(self, path: str) -> int | None:
        with suppress(FileNotFoundError):
            return os.stat(path).st_ctime_ns
        return None

    def modified_at_ms(self, path: str) -> int | None:
        with suppress(FileNotFoundError):
            return os.stat(path).st_mtime_ns // 1_000_000
        return None

    def stamp(self, path: str) -> str | None:
        with suppress(FileNotFoundError):
            status = os.stat(path)
            return f"{status.st_ino}-{status.st_ctime_ns}"
        return None

    def walk(self, folder: str) -> Iterator[StoredFile]:
        for where, _, names in os.walk(folder):
            for name in sorted(names):
                path = os.path.join(where, name)
                with suppress(FileNotFoundError):
                    status = os.stat(path)
                    modified = status.st_mtime_ns // 1_000_000
                    yield StoredFile(path=path, size_bytes=status.st_size, modified_at_ms=modified)


def plain_path(uri: str) -> str:
    """Converts Hadoop's spelling of a path to that of `TableFiles`."""
    if uri.startswith("s3a://"):
        return f"s3://{uri.removeprefix('s3a://')}"
    return uri.removeprefix("file://").removeprefix("file:")


def inside(path: str) -> str:
    """Returns the path as its file system spells it."""
    return path.removeprefix("s3://")


def sync(paths: Iterable[str]) -> None:
    """Syncs files, and the folders that name them, to stable storage: a commit must not outlive its files. Objects are
    stable when the store has answered."""
    local = [p for p in paths if "://" not in p]
    for path in [*local, *{os.path.dirname(p) for p in local}]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data


def _stage(path: str, data: bytes) -> str:
    """Writes a temporary file in the same folder, under a name that readers ignore."""
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    staged = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(staged, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
    except OSError:  # frees the space on a full disk
        with suppress(OSError):
            os.unlink(staged)
        raise
    return staged
