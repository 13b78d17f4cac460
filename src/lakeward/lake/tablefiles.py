# SPDX-License-Identifier: Apache-2.0
"""A table's files on a folder or in an object store. Those that are commits are the first under their name or none."""

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
    """Paths are whole: `/folder/name`, `s3://bucket/name`. All calls raise `OSError` for trouble outside."""

    bounds = MetadataBounds()

    @property
    @abstractmethod
    def filesystem(self) -> fs.FileSystem:
        """For rows: files that are read in parts, and written as they grow."""

    def read(self, path: str) -> str | None:
        data = self.read_bytes(path)
        return None if data is None else data.decode()

    @abstractmethod
    def read_bytes(self, path: str, limit: int | None = None) -> bytes | None:
        """None where no file is. `limit`: at most so many bytes, of which there may be more."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Of what lies directly in it; none where it is not there."""

    def has_folder(self, folder: str) -> bool:
        """An object store has none that could be away."""
        return True

    @abstractmethod
    def put_exclusively(self, path: str, data: str | bytes) -> bool:
        """False where a file is, whoever made it. The name never shows half of one."""

    @abstractmethod
    def put(self, path: str, data: str | bytes) -> None:
        """Whole or not at all, in place of what is there."""

    @abstractmethod
    def delete(self, path: str) -> int:
        """Bytes freed; 0 where it is gone."""

    def remove_folder(self, folder: str) -> None:
        """With all that lies below it. Safe to repeat."""
        for file in self.walk(folder):
            self.delete(file.path)

    @abstractmethod
    def made_at(self, path: str) -> int | None:
        """When it was made, by the storage's own clock; only the order counts."""

    @abstractmethod
    def modified_at_ms(self, path: str) -> int | None: ...

    @abstractmethod
    def stamp(self, path: str) -> str | None:
        """Another one when another file took its name; None where none is."""

    @abstractmethod
    def walk(self, folder: str) -> Iterator[StoredFile]: ...

    def probe(self, folder: str, name: str = PROBE) -> None:
        """Writes and deletes a small file whose name begins so. Safe to repeat."""
        path = f"{folder}/{name}{uuid.uuid4().hex}"
        self.put(path, "lakeward")
        self.delete(path)

    def check(self, path: str) -> str:
        """The same path, where the table's files may lie (`AllowedFiles`)."""
        return path

    def open_input(self, path: str) -> pa.NativeFile:
        return self.filesystem.open_input_file(inside(path))

    def open_metadata(self, path: str) -> pa.NativeFile:
        """Raises `LakeMetadataTooLarge`."""
        source = self.open_input(path)
        self.bounds.check_packed(path, source.size())
        return source

    def open_output(self, path: str) -> pa.NativeFile:
        """Shows nothing, or part of it, until it is closed: for files that a commit names later."""
        return self.filesystem.open_output_stream(inside(path))


class LocalFiles(TableFiles):
    @cached_property
    def filesystem(self) -> fs.FileSystem:
        return fs.LocalFileSystem()

    def open_output(self, path: str) -> pa.NativeFile:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return super().open_output(path)

    def read_bytes(self, path: str, limit: int | None = None) -> bytes | None:
        """A pipe is not waited for, and a device not read."""
        try:
            with open(path, "rb", opener=_open_at_once) as source:
                if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                    raise OSError(f"{path} is no regular file")
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
        """By link(2)."""
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
        """Gone at once under its name, so that nobody reads half of it."""
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
    """As `TableFiles` spells what others spell as Hadoop does."""
    if uri.startswith("s3a://"):
        return f"s3://{uri.removeprefix('s3a://')}"
    return uri.removeprefix("file://").removeprefix("file:")


def inside(path: str) -> str:
    """As its file system spells it."""
    return path.removeprefix("s3://")


def sync(paths: Iterable[str]) -> None:
    """On stable storage, with the folders that name them: a commit must not outlive its files. An object store
    answers when they are."""
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
    """Beside it, under a name that nobody reads."""
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    staged = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(staged, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
    except OSError:  # a full disk gets back what little there is
        with suppress(OSError):
            os.unlink(staged)
        raise
    return staged
