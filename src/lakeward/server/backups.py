# SPDX-License-Identifier: Apache-2.0
"""Backups of a server's folder: made while it runs, listed, put back. Lakes are in them where that is asked for.

A backup is a folder below its target, or a prefix in S3: `files/` as they were, and `backup.json`, which is written
last and names each of them with size and checksum. Without it there is no backup.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
import uuid
import zlib
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward import __version__
from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.backup import copy_database, stage_store
from lakeward.hot.embedded.log.durable import sync_folder
from lakeward.lake.allowedpaths import AllowedPaths, has_dots
from lakeward.model import fault_point, free_bytes
from lakeward.model.logline import NONSENSE
from lakeward.protocol.codec import decode, encode
from lakeward.protocol.tables import BackupMade, MakeBackup
from lakeward.server.lakecopy import LakeFolder
from lakeward.server.restored import LakeRecord, RestoredMark, write_mark
from lakeward.server.show.facts import BACKED_UP

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from lakeward.server.services import Services

PREFIX, MANIFEST, FILES, LAKES, STAGED = "lakeward-", "backup.json", "files", "lakes", "backup-staged"
_PART_BYTES = 8 << 20
_MOST_MANIFEST_BYTES = 256 << 20
"""A file takes 100 bytes."""

_one_at_a_time = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class BackupManifest:
    """`files`: path -> (bytes, CRC-32). `ends`: table -> bucket -> where its log ends. `lakes`: those of the server.
    `lake_files`: the files of those that are in the backup, below `lakes/<name>/`."""

    name: str
    version: str
    begun_at_ms: int
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lakes: Mapping[str, LakeRecord] = field(default_factory=dict)
    lake_files: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())

    @property
    def lake_bytes(self) -> dict[str, int]:
        return {name: sum(size for size, _ in files.values()) for name, files in self.lake_files.items()}


def make_backup(services: Services, asked: MakeBackup) -> BackupMade:
    """Everything that was acknowledged before the call is in it, or in the lake. Lakes are copied last, so that they
    are as new as the rest of the copy or newer. Raises `InvalidRequest`."""
    target = asked.target
    if not _one_at_a_time.acquire(blocking=False):
        raise InvalidRequest(what="backup", reason="another one is under way; wait for its end")
    with ExitStack() as stack:
        stack.callback(_one_at_a_time.release)
        begun_at_ms, began = services.clock.now_ms(), time.monotonic()
        storage, root = open_target(target)
        data = services.data.resolve()
        folders = services.lakes.local_folders() if asked.with_lake and services.lakes is not None else {}
        for folder in (data, *(lake.folder.resolve() for lake in folders.values())):
            if folder in Path(root).parents or Path(root) == folder:
                what = "the data folder" if folder == data else "the lake's folder"
                raise InvalidRequest(what=f"target {target}", reason=f"it lies in {what} {folder}")
        staged = data / STAGED
        shutil.rmtree(staged, ignore_errors=True)
        stack.callback(shutil.rmtree, staged, ignore_errors=True)
        staged.mkdir(mode=0o700)
        ends = _stage(services, data, staged)
        name = f"{PREFIX}{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(begun_at_ms / 1000))}-{uuid.uuid4().hex[:8]}"
        files = _send(staged, storage, f"{root}/{name}/{FILES}")
        lakes = {} if services.lakes is None else services.lakes.records()
        manifest = BackupManifest(
            name=name,
            version=__version__,
            begun_at_ms=begun_at_ms,
            files=files,
            ends=ends,
            lakes=lakes,
            lake_files={n: _send_lake(lake, storage, f"{root}/{name}/{LAKES}/{n}") for n, lake in folders.items()},
        )
        fault_point("backup.before-manifest")
        with storage.open_output_stream(f"{root}/{name}/{MANIFEST}") as out:
            out.write(json.dumps(encode(manifest)).encode())
        (data / BACKED_UP).touch()
    took_ms = round((time.monotonic() - began) * 1000)
    return BackupMade(
        name=name,
        files=len(files),
        bytes=manifest.bytes,
        took_ms=took_ms,
        lakes=manifest.lake_bytes,
        lakes_left_out={n: record.folder or record.place for n, record in lakes.items() if n not in folders},
    )


def _stage(services: Services, data: Path, staged: Path) -> Mapping[str, Mapping[str, int]]:
    """Copies the lake's committed state before the logs: the logs then hold all rows that it counts on."""
    for database in (Path("coordinator.db"), Path("iceberg") / "catalog.db"):
        if (data / database).is_file():
            copy_database(data / database, staged / database)
    return stage_store(services.store, data, staged)


def _send(staged: Path, storage: FileSystem, root: str) -> dict[str, tuple[int, int]]:
    files = (p for p in staged.rglob("*") if p.is_file())
    names = sorted(file.relative_to(staged).as_posix() for file in files)
    return {name: _send_file(staged / name, storage, f"{root}/{name}") for name in names}


def _send_lake(lake: LakeFolder, storage: FileSystem, root: str) -> dict[str, tuple[int, int]]:
    files = {}
    for name in lake.files():
        with suppress(FileNotFoundError):  # it expired since it was listed
            files[name] = _send_file(lake.folder / name, storage, f"{root}/{name}")
    return files


def _send_file(file: Path, storage: FileSystem, target: str) -> tuple[int, int]:
    with file.open("rb") as source:
        if storage.type_name == "local":
            storage.create_dir(target.rpartition("/")[0], recursive=True)
        with storage.open_output_stream(target) as out:
            return _copy(source, out)


def list_backups(target: str) -> list[BackupManifest]:
    """Whole ones, oldest first."""
    from pyarrow.fs import FileSelector, FileType

    storage, root = open_target(target)
    backups = []
    for info in storage.get_file_info(FileSelector(root, allow_not_found=True)):
        path = f"{root}/{info.base_name}/{MANIFEST}"
        if info.base_name.startswith(PREFIX) and storage.get_file_info(path).type == FileType.File:
            backups.append(_load(storage, path, info.base_name))
    return sorted(backups, key=lambda m: m.begun_at_ms)


@dataclass(frozen=True, kw_only=True)
class RestoredBackup:
    """`lakes`: name -> the folder to which its files came back; `lakes_there`: where a lake was there already."""

    manifest: BackupManifest
    lakes: Mapping[str, str] = field(default_factory=dict)
    lakes_there: Mapping[str, str] = field(default_factory=dict)


def restore_backup(target: str, data: Path, name: str | None = None, *, with_lake: bool = False) -> RestoredBackup:
    """The newest, or the one of that name, as a data folder that was not there or is empty, with the mark that says so.
    `with_lake`: also its lakes, each to the folder where it was, unless that has files. Whole or not at all. Raises
    `InvalidRequest`."""
    if data.exists() and any(data.iterdir()):
        raise InvalidRequest(what=f"folder {data}", reason="it is not empty; restore into a new one")
    manifest = _choose(list_backups(target), target, name)
    if with_lake and not manifest.lake_files:
        reason = "no lake is in it; it was made without --with-lake, or no lake is in a folder of that machine"
        raise InvalidRequest(what=f"backup {manifest.name}", reason=reason)
    folders = {n: Path(manifest.lakes[n].folder) for n in manifest.lake_files} if with_lake else {}
    used_folders = {n: str(folder) for n, folder in folders.items() if folder.is_dir() and any(folder.iterdir())}
    copies = {
        n: _Copy(target, manifest.name, f"{LAKES}/{n}", manifest.lake_files[n])
        for n in folders
        if n not in used_folders
    }
    places, asides = {"": data, **folders}, dict[str, Path]()
    try:
        asides[""] = _Copy(target, manifest.name, FILES, manifest.files).fetch(data)
        asides |= {n: copy.fetch(folders[n]) for n, copy in copies.items()}
        mark = RestoredMark(backup=manifest.name, begun_at_ms=manifest.begun_at_ms, lakes=manifest.lakes)
        write_mark(asides[""], mark)
        for n in list(asides):
            put_in_place(asides.pop(n), places[n])
    finally:
        for aside in asides.values():
            shutil.rmtree(aside, ignore_errors=True)
    return RestoredBackup(manifest=manifest, lakes={n: str(folders[n]) for n in copies}, lakes_there=used_folders)


@dataclass(frozen=True)
class _Copy:
    """Files of a backup below one of its folders."""

    target: str
    backup: str
    below: str
    files: Mapping[str, tuple[int, int]]

    def fetch(self, folder: Path) -> Path:
        """Everything, checked, in a folder beside `folder`. Raises `InvalidRequest`."""
        aside = folder.with_name(f"{folder.name}.restoring")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700, parents=True)
        try:
            self._fetch(aside)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        return aside

    def _fetch(self, aside: Path) -> None:
        storage, top = open_target(self.target)
        root = f"{top}/{self.backup}/{self.below}"
        total, free = sum(size for size, _ in self.files.values()), free_bytes(aside)
        if total > free:
            reason = f"it has {total:,} bytes, and {aside.parent} has room for {free:,}"
            raise InvalidRequest(what=f"backup {self.backup}", reason=reason)
        # A link in a backup would bring any file of this machine into the new folder.
        allowed_paths = None if "://" in self.target else AllowedPaths("", root, top)
        for path, (size, checksum) in self.files.items():
            is_elsewhere = ".." in Path(path).parts or Path(path).is_absolute()
            if is_elsewhere or (
                allowed_paths is not None and not allowed_paths.allows(f"{allowed_paths.location}/{path}")
            ):
                raise InvalidRequest(what=f"backup {self.backup}", reason=f"its file {path} lies elsewhere")
            file = aside / path
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                if allowed_paths is not None and not Path(f"{root}/{path}").is_file():  # a pipe has no end
                    raise FileNotFoundError(path)
                with storage.open_input_stream(f"{root}/{path}") as source, file.open("wb") as out:
                    copied = _copy(source, out, size)
            except FileNotFoundError:
                copied = (0, -1)
            if copied != (size, checksum):
                reason = (
                    f"its file {path} is not what was written ({copied[0]:,} bytes of {size:,}); take another backup"
                )
                raise InvalidRequest(what=f"backup {self.backup}", reason=reason)


def put_in_place(aside: Path, folder: Path) -> None:
    if folder.exists():
        folder.rmdir()
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside.rename(folder)
    sync_folder(folder.parent)


def open_target(target: str) -> tuple[FileSystem, str]:
    """A folder by its absolute path, or `s3://bucket/prefix` with Arrow's options behind a question mark. Raises
    `InvalidRequest`."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem, LocalFileSystem

    if "://" not in target:
        if not Path(target).is_absolute():
            raise InvalidRequest(what=f"target {target}", reason="give an absolute path, or s3://bucket/prefix")
        return LocalFileSystem(), str(Path(target).resolve())
    try:
        storage, root = FileSystem.from_uri(target)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidRequest(what=f"target {target.partition('?')[0]}", reason=str(error)) from error
    return storage, root.rstrip("/")


def _load(storage: FileSystem, path: str, name: str) -> BackupManifest:
    """Raises `InvalidRequest` for one that no server wrote: its names lead to files elsewhere."""
    with storage.open_input_stream(path) as source:
        text = source.read(_MOST_MANIFEST_BYTES + 1)
    try:
        if len(text) > _MOST_MANIFEST_BYTES:
            raise ValueError(f"more than {_MOST_MANIFEST_BYTES >> 20} MB")
        manifest = decode(BackupManifest, json.loads(text))
        folders = [manifest.lakes[lake].folder for lake in manifest.lake_files]
    except (*NONSENSE, RecursionError) as error:
        reason = f"its {MANIFEST} is not what a server wrote ({str(error)[:200]}); take another, or remove its folder"
        raise InvalidRequest(what=f"backup {name}", reason=reason) from error
    named = [manifest.name, *manifest.lake_files]
    if manifest.name != name or any(len(Path(n).parts) != 1 or has_dots(n) for n in named):
        raise InvalidRequest(what=f"backup {name}", reason=f"its {MANIFEST} names another folder: {named[:3]!r}"[:300])
    for folder in folders:
        if not Path(folder).is_absolute() or has_dots(folder):
            reason = f"its lake's folder {folder[:200]!r} is no absolute path, or leads upwards"
            raise InvalidRequest(what=f"backup {name}", reason=reason)
    return manifest


def _choose(found: list[BackupManifest], target: str, name: str | None) -> BackupManifest:
    chosen = [m for m in found if name in (None, m.name)]
    if not chosen:
        there = ", ".join(m.name for m in found) or "no whole backup"
        raise InvalidRequest(what=f"backup {name or 'in ' + target}", reason=f"there is {there}")
    return chosen[-1]


def _copy(source: Any, out: Any, most: float = inf) -> tuple[int, int]:
    """Stops behind `most` bytes: a file may have grown, or have no end."""
    size = checksum = 0
    while size <= most and (part := source.read(_PART_BYTES)):
        out.write(part)
        size, checksum = size + len(part), zlib.crc32(part, checksum)
    return size, checksum
