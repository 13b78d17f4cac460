# SPDX-License-Identifier: Apache-2.0
"""A table's own files beside its rows, snapshots above all, on a folder or in an object store: read and written by us,
as a commit must be the first under its name or none."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress

from lakeward.lake.paimon.names import sync
from lakeward.spi.lakefile import StoredFile


class TableFiles(ABC):
    """Paths are whole: `/folder/name`, `s3://bucket/name`. All calls raise `OSError` for trouble outside."""

    @abstractmethod
    def read(self, path: str) -> str | None: ...

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Of what lies directly in it; none where it is not there."""

    @abstractmethod
    def put_exclusively(self, path: str, text: str) -> bool:
        """False where a file is, whoever made it. The name never shows half of one."""

    @abstractmethod
    def put(self, path: str, text: str) -> None: ...

    @abstractmethod
    def delete(self, path: str) -> int:
        """Bytes freed; 0 where it is gone."""

    @abstractmethod
    def made_at(self, path: str) -> int | None:
        """When it was made, by the storage's own clock; only the order counts."""

    @abstractmethod
    def walk(self, folder: str) -> Iterator[StoredFile]: ...


class LocalFiles(TableFiles):
    def read(self, path: str) -> str | None:
        try:
            with open(path, encoding="utf-8") as text:
                return text.read()
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        with suppress(FileNotFoundError):
            return os.listdir(folder)
        return []

    def put_exclusively(self, path: str, text: str) -> bool:
        """By link(2)."""
        staged = _stage(path, text)
        try:
            os.link(staged, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(staged)
        sync([path])
        return True

    def put(self, path: str, text: str) -> None:
        os.replace(_stage(path, text), path)

    def delete(self, path: str) -> int:
        with suppress(FileNotFoundError):
            size = os.path.getsize(path)
            os.unlink(path)
            return size
        return 0

    def made_at(self, path: str) -> int | None:
        with suppress(FileNotFoundError):
            return os.stat(path).st_ctime_ns
        return None

    def walk(self, folder: str) -> Iterator[StoredFile]:
        for inside, _, names in os.walk(folder):
            for name in sorted(names):
                path = os.path.join(inside, name)
                with suppress(FileNotFoundError):
                    status = os.stat(path)
                    modified = status.st_mtime_ns // 1_000_000
                    yield StoredFile(path=path, size_bytes=status.st_size, modified_at_ms=modified)


def _stage(path: str, text: str) -> str:
    """Beside it, under a name that nobody reads."""
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    staged = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    with open(staged, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    return staged
