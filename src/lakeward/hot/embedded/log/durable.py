# SPDX-License-Identifier: Apache-2.0
"""Small files that are whole or absent: written aside, fsynced, renamed; sealed with a checksum."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import google_crc32c

_SEAL = struct.Struct("<4sI")


def sync_folder(folder: Path) -> None:
    """Makes names in a folder durable: new, renamed and removed files."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, durably. Safe to repeat."""
    if folder.exists():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def write_whole(path: Path, data: bytes, *, sync: bool = True) -> None:
    """A crash leaves the old file or the new one. Without `sync` a power cut may leave an unsealed one: seal it."""
    aside = path.with_name(path.name + ".tmp")
    with aside.open("wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    aside.replace(path)
    if sync:
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def seal(magic: bytes, data: bytes) -> bytes:
    return _SEAL.pack(magic, google_crc32c.value(data)) + data


def find_sealed(magic: bytes, data: bytes) -> bytes | None:
    """The sealed content; None if these bytes are something else or damaged."""
    if len(data) < _SEAL.size:
        return None
    stored_magic, crc = _SEAL.unpack_from(data)
    body = data[_SEAL.size :]
    return body if stored_magic == magic and google_crc32c.value(body) == crc else None


def find_file(path: Path, magic: bytes) -> bytes | None:
    """Content of a sealed file; None if the file is missing or damaged."""
    try:
        return find_sealed(magic, path.read_bytes())
    except FileNotFoundError:
        return None


class ReopenedFile:
    """Not thread-safe: its owner's lock guards it."""

    def __init__(self, path: Path, flags: int) -> None:
        self._path, self._flags, self._fd = path, flags | os.O_CLOEXEC, -1

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self._path, self._flags, 0o644)
        return self._fd

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
