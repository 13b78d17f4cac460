# SPDX-License-Identifier: Apache-2.0
"""Allowed places of a lake table's files. Anyone who can write below a table's folder can write paths into its
metadata: each path is compared with the table's own location before a file is opened or deleted there.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as fs

from lakeward.errors import LakePathRefused
from lakeward.lake.metadatabounds import MetadataBounds
from lakeward.lake.tablefiles import LocalFiles, TableFiles
from lakeward.spi import StoredFile

ALLOWED_LOCATIONS: Final = "allowed-locations"
"""Option of a lake: additional folders and addresses, separated by commas, that may contain files of its tables."""

OFFSETS_OF_FLUSS: Final = re.compile(r"[^?#]*/metadata/[^/?#]+\.offsets")
"""Paths at which a Fluss cluster stores the offsets of a lake snapshot: in its own storage, outside the lake."""

_S3: Final = ("s3a", "s3n")
_DOTS: Final = frozenset({".", ".."})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""Characters that some readers ignore."""


def parse_locations(options: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(part for text in options.get(ALLOWED_LOCATIONS, "").split(",") if (part := text.strip()))


@dataclass(frozen=True)
class AllowedPaths:
    """Allowed paths of one table. `location`: the table's place according to its catalog, not to its own metadata.
    Below the warehouse the table's folder must not be a link; the operator is responsible for links above it."""

    table: str
    location: str
    warehouse: str = ""
    more: tuple[str, ...] = ()
    _folders: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def check(self, path: str) -> str:
        """Returns the same path. Raises `LakePathRefused`."""
        if not self.allows(path):
            raise LakePathRefused(table=self.table, path=path[:500], location=self.location)
        return path

    def allows(self, path: str) -> bool:
        if has_dots(path) or _CONTROL.search(path):
            return False
        place = split_place(path)
        if place is None:
            return False
        scheme, host, name = place
        # Some readers treat `#` and `?` as the end of a URI's path, and others as part of it.
        names = {name, name.partition("#")[0].partition("?")[0]} if scheme else {name}
        if scheme in ("", "file"):
            return not host and all(_lies_below(self._resolved(n), self._local_roots) for n in names)
        return all(_lies_below(f"{scheme}://{host}{n}", self._remote_roots) for n in names)

    @cached_property
    def _local_roots(self) -> tuple[str, ...]:
        own, warehouse = _local(self.location), _local(self.warehouse)
        roots = [os.path.realpath(path) for text in self.more if (path := _local(text))]
        if own and warehouse and _lies_below(own, (warehouse,)):
            roots.append(os.path.join(os.path.realpath(warehouse), os.path.relpath(own, warehouse)))
        elif own:
            roots.append(os.path.realpath(own))
        return tuple(roots)

    @cached_property
    def _remote_roots(self) -> tuple[str, ...]:
        places = [place for text in (self.location, *self.more) if (place := split_place(text)) and place[1]]
        return tuple(f"{scheme}://{host}{name.rstrip('/')}" for scheme, host, name in places)

    def _resolved(self, path: str) -> str:
        """Resolves links; "" for a path that is neither a file nor a folder: reading a pipe could block for ever."""
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        resolved = os.path.join(self._folders[folder], name)
        try:
            mode = os.lstat(resolved).st_mode
            if stat.S_ISLNK(mode):
                resolved = os.path.realpath(resolved)
                mode = os.stat(resolved).st_mode
        except OSError:
            return resolved
        return resolved if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else ""


@dataclass(frozen=True)
class AllowedFiles(TableFiles):
    """A table's files; each path is checked before the file is touched. Raises `LakePathRefused`."""

    inner: TableFiles
    allowed: AllowedPaths
    bounds: MetadataBounds = field(default_factory=MetadataBounds)

    def check(self, path: str) -> str:
        return self.allowed.check(path)

    def read_offsets_of_fluss(self, path: str) -> str | None:
        if OFFSETS_OF_FLUSS.fullmatch(path) is None or has_dots(path):
            return self.read(path)
        storage = self.inner if "://" in path else LocalFiles()
        return replace(self, inner=storage, allowed=AllowedPaths("", "", more=(path,))).read(path)

    @property
    def filesystem(self) -> fs.FileSystem:
        return self.inner.filesystem

    def read_bytes(self, path: str, limit: int | None = None) -> bytes | None:
        """Reads a file; without a limit it is a metadata file. Raises `LakeMetadataTooLarge`."""
        if limit is not None:
            return self.inner.read_bytes(self.allowed.check(path), limit)
        data = self.inner.read_bytes(self.allowed.check(path), self.bounds.limit + 1)
        self.bounds.check_packed(path, len(data or b""))
        return data

    def names(self, folder: str) -> list[str]:
        return self.inner.names(folder)

    def has_folder(self, folder: str) -> bool:
        return self.inner.has_folder(folder)

    def put_exclusively(self, path: str, data: str | bytes) -> bool:
        return self.inner.put_exclusively(self.allowed.check(path), data)

    def put(self, path: str, data: str | bytes) -> None:
        self.inner.put(self.allowed.check(path), data)

    def delete(self, path: str) -> int:
        return self.inner.delete(self.allowed.check(path))

    def made_at(self, path: str) -> int | None:
        return self.inner.made_at(path)

    def modified_at_ms(self, path: str) -> int | None:
        return self.inner.modified_at_ms(path)

    def stamp(self, path: str) -> str | None:
        return self.inner.stamp(path)

    def walk(self, folder: str) -> Iterator[StoredFile]:
        return self.inner.walk(folder)

    def open_input(self, path: str) -> pa.NativeFile:
        return self.inner.open_input(self.allowed.check(path))

    def open_output(self, path: str) -> pa.NativeFile:
        return self.inner.open_output(self.allowed.check(path))


def has_dots(path: str) -> bool:
    """Whether a path leads upwards, in any spelling."""
    return "." in unquote(path) and any(s in _DOTS for text in (path, unquote(path)) for s in text.split("/"))


def split_place(text: str) -> tuple[str, str, str] | None:
    """Splits an address into scheme, host or bucket, and path, with one spelling of each scheme; None for a relative
    path."""
    if text.startswith("/"):
        return "", "", text
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    if not parts.scheme:
        return None
    name = text[len(parts.scheme) + 1 :].removeprefix(f"//{parts.netloc}")
    return ("s3" if parts.scheme in _S3 else parts.scheme), parts.netloc, name


def _local(text: str) -> str:
    """Returns the path of a place on this machine without a slash at its end; "" for another place."""
    scheme, host, name = split_place(text) or ("", "", "")
    return (name.rstrip("/") or "/") if name and not host and scheme in ("", "file") else ""


def _lies_below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots)
