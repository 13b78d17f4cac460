# SPDX-License-Identifier: Apache-2.0
"""The data folder: one server's at a time, with a format version; an older one is migrated after a copy was made.

format.json, lock           the version; who has the folder open
meta.db                     tables, schemas, partitions, remembered offsets (`metadb`)
tables/NAME/pP/bB/          a table's own name (in `metadb`), partition P (0: unpartitioned), bucket B
    log/BASE.log            a segment of log batches from offset BASE on; the highest one is being appended to
    log/BASE.index          its sparse index; it can be made again, as can
    log/BASE.writers        the writers as they were before it
    log/synced, log/clean   how far it is known to be on disk; what an orderly stop noted
    log/segments            which segments there are; it and `synced` tell when the other is lost
    kv/                     RocksDB and its snapshots, PK tables only
    remote.json             the bucket's manifest of the remote tier, as last published
ballast                     space that is given up when the disk is full, so that state goes on
remote/                     the remote tier, unless `remote.data.dir` names another place
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from lakeward.errors import DataFolderLocked, DataFolderVersion, UnsafePath
from lakeward.hot.embedded.log.durable import sync_folder, write_whole
from lakeward.model import fault_point, usable

FORMAT_VERSION = 1
_NEVER_REWRITTEN = "remote"
"""Files below this folder are written once, so a copy may share them."""

Migration = Callable[[Path], None]
MIGRATIONS: Mapping[int, Migration] = {}
"""Version -> what turns a folder of that version into one of the next. Each may be cut off and run again."""


class DataFolder:
    """Locked from `open` to `close`; the lock goes with the process, however it ends."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path, self._lock_fd = path, lock_fd

    @classmethod
    def open(
        cls, path: Path, *, version: int = FORMAT_VERSION, migrations: Mapping[int, Migration] = MIGRATIONS
    ) -> DataFolder:
        """Raises `DataFolderLocked`, `DataFolderUnusable`, `DataFolderVersion` for a newer one. A crash in a migration
        leaves the copy whole and the folder at its old version: the next start goes on."""
        with usable(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = cls(path, _lock(path))
        try:
            folder._bring_to(version, migrations)
        except BaseException:
            folder.close()
            raise
        return folder

    def close(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    def remove(self, folder: Path) -> None:
        """Deletes a folder below `tables`. Safe to repeat; a file that cannot be removed is left. Raises `UnsafePath`
        for anything that lies elsewhere, also by way of a link: nothing is deleted then."""
        home = self.tables.resolve()
        if ".." in folder.parts or folder.is_symlink() or home not in folder.resolve().parents:
            raise UnsafePath(path=str(folder), folder=str(self.tables))
        shutil.rmtree(folder, ignore_errors=True)

    def _bring_to(self, version: int, migrations: Mapping[int, Migration]) -> None:
        stored_version = find_version(self.path)
        if stored_version is None:
            write_version(self.path, version)
            return
        if stored_version > version:
            raise DataFolderVersion(folder=str(self.path), found=stored_version, known=version)
        if stored_version < version:
            copy_aside(self.path, stored_version)
        for step in range(stored_version, version):
            fault_point("datafolder.before-migration", version=step)
            migrations[step](self.path)
            write_version(self.path, step + 1)


def find_version(path: Path) -> int | None:
    """None: a new folder."""
    try:
        return int(json.loads((path / "format.json").read_bytes())["version"])
    except FileNotFoundError:
        return None


def write_version(path: Path, version: int) -> None:
    write_whole(path / "format.json", json.dumps({"version": version}).encode())


def copy_aside(path: Path, version: int) -> Path:
    """A copy beside the folder, made once, whole when its name is there."""
    target = path.with_name(f"{path.name}.format-{version}")
    if not target.exists():
        half = target.with_name(target.name + ".tmp")
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(
            path,
            half,
            symlinks=True,
            copy_function=lambda s, d: _copy(path, s, d),
            ignore=shutil.ignore_patterns("lock", "ballast"),
        )
        half.rename(target)
        sync_folder(target.parent)
    return target


def _copy(root: Path, source: str, target: str) -> None:
    if Path(source).relative_to(root).parts[0] == _NEVER_REWRITTEN:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _lock(path: Path) -> int:
    fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(fd, 40, 0).decode(errors="replace").strip() or "another process"
        os.close(fd)
        raise DataFolderLocked(folder=str(path), holder=holder) from None
    with suppress(OSError):  # who has it is for people; a full disk has no room for that
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()}\n".encode(), 0)
    return fd
