# SPDX-License-Identifier: Apache-2.0
"""Operating-system errors about disks and folders, as our errors: full, read-only, no permission to open."""

from __future__ import annotations

import errno
import getpass
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakeward.errors import DataFolderUnusable, DiskFull
from lakeward.model.ballast import DISK_FULL

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
