# SPDX-License-Identifier: Apache-2.0
"""Disks and folders: space kept free so that SQLite goes on when the disk is full, and operating-system errors
translated into Lakeward errors."""

from __future__ import annotations

import errno
import getpass
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lakeward.errors import DataFolderUnusable, DiskFull

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
BALLAST_BYTES = 16 << 20
"""Two databases with a write-ahead log of 4 MB each, the keys of some buckets being opened, and as much again."""

_LOW_BYTES = 1 << 20
"""One of our transactions takes kilobytes."""


def free_bytes(folder: Path) -> int:
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


class Ballast:
    """`before_write` costs a system call while there is room. Thread-safe."""

    def __init__(self, folder: Path, size: int = BALLAST_BYTES) -> None:
        self.folder, self.size = folder, size
        self._path, self._lock = folder / "ballast", threading.Lock()

    def before_write(self) -> None:
        """Gives the space up when the disk is about to be full."""
        if self.size and free_bytes(self.folder) < _LOW_BYTES:
            with self._lock:
                self._path.unlink(missing_ok=True)

    def restore(self, spare_bytes: int = 0) -> None:
        """Takes the space when there is that much more, and does without it when there is not."""
        with self._lock:
            if self._path.exists() or not self.size or free_bytes(self.folder) < self.size + spare_bytes + _LOW_BYTES:
                return
            try:
                with self._path.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, self.size)
            except OSError:
                self._path.unlink(missing_ok=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around what writes to this disk. Raises `DiskFull` where the system says that it is."""
        with suppress(OSError):
            self.before_write()
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            if not self._is_full(error):
                raise
            raise DiskFull(where=str(self.folder), free_bytes=free_bytes(self.folder), reserve_bytes=0) from error

    def _is_full(self, error: Exception) -> bool:
        if isinstance(error, OSError):
            return error.errno in DISK_FULL
        code = getattr(error, "sqlite_errorcode", 0)
        # of what SQLite calls an I/O error (10 and a detail) only the room that is left tells
        return code == sqlite3.SQLITE_FULL or (code & 0xFF == sqlite3.SQLITE_IOERR and free_bytes(self.folder) < 65536)


_DEEPEST_CAUSE = 8


def find_disk_trouble(error: BaseException) -> DiskFull | DataFolderUnusable | None:
    """Finds the cause of an error in a full or read-only disk, also below errors of SQLAlchemy, Arrow or Lakeward;
    None: the cause is another one."""
    seen: BaseException | None = error
    for _ in range(_DEEPEST_CAUSE):
        if seen is None or isinstance(seen, DiskFull | DataFolderUnusable):
            return seen
        code, where = _codes(seen), str(getattr(seen, "filename", None) or "the server's disk")
        if code & _FULL:
            return DiskFull(where=where, free_bytes=0, reserve_bytes=0)
        if code & _READ_ONLY:
            return DataFolderUnusable(folder=where, user=user_name(), reason=_words(seen))
        seen = seen.__cause__ or seen.__context__
    return None


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Around the opening of what lies in a data folder. Raises `DataFolderUnusable` where the system refuses it."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if not _codes(error) & (_READ_ONLY | _REFUSED):
            raise
        words = _words(error).removeprefix(f"{folder}: ")
        raise DataFolderUnusable(folder=str(folder), user=user_name(), reason=words) from error


_FULL = {*DISK_FULL, -sqlite3.SQLITE_FULL}
_READ_ONLY = {errno.EROFS, -sqlite3.SQLITE_READONLY}
_REFUSED = {errno.EACCES, errno.EPERM, errno.ENOTDIR, -sqlite3.SQLITE_CANTOPEN, -sqlite3.SQLITE_PERM}


def _codes(error: BaseException) -> set[int]:
    """The system's number of an error, or SQLite's, below zero."""
    if isinstance(error, OSError) and error.errno is not None:
        return {error.errno}
    code = getattr(error, "sqlite_errorcode", None)
    return set() if code is None else {-(code & 0xFF)}


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
