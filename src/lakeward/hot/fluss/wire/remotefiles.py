# SPDX-License-Identifier: Apache-2.0
"""Files of Fluss's remote storage, read without a Fluss server: closed log segments and the files of KV snapshots."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from lakeward.errors import ClusterUnavailable
from lakeward.hot.logbatch.header import PREFIX_SIZE, peek

_WINDOW = 8 * 1024 * 1024
_COPY = 4 * 1024 * 1024
_S3 = ("s3://", "s3a://", "s3n://")
"""Hadoop's names for the same thing."""


def segment_path(folder: str, segment_id: str, start: int) -> str:
    return f"{folder}/{segment_id}/{start:020d}.log"


def read_batches(path: str, position: int = 0) -> Iterator[pa.Buffer]:
    """Whole log batches of a segment from a byte position on; a cut one at the end is left out. Constant memory."""
    with _reading(path), _open(path) as source:
        size = source.size()
        while position + PREFIX_SIZE <= size:
            window = _read_at(source, position, min(_WINDOW, size - position))
            used = 0
            for batch in split_batches(window):
                yield batch
                used += batch.size
            if not used:
                batch_bytes = peek(window, 0)[1]
                if batch_bytes <= window.size or position + batch_bytes > size:
                    return
                yield _read_at(source, position, batch_bytes)
                used = batch_bytes
            position += used


def _read_at(source: pa.NativeFile, position: int, size: int) -> pa.Buffer:
    """A view of a mapped file, a copy of any other file."""
    source.seek(position)
    return source.read_buffer(size)


def split_batches(data: pa.Buffer) -> Iterator[pa.Buffer]:
    """The whole batches in a run of bytes; the server may cut the last one."""
    position, end = 0, data.size
    while position + PREFIX_SIZE <= end:
        _, size = peek(data, position)
        if size <= PREFIX_SIZE or position + size > end:
            return
        yield data.slice(position, size)
        position += size


def copy_file(path: str, target: Path) -> None:
    with _reading(path), _open(path) as source, target.open("wb") as out:
        position, size = 0, source.size()
        while position < size:
            part = source.read_at(min(_COPY, size - position), position)
            out.write(part)
            position += len(part)


def _open(path: str) -> pa.NativeFile:
    """A plain path is this machine's; anything with a scheme is what pyarrow makes of it, with this process's
    credentials.
    """
    if "://" not in path and not path.startswith("file:"):
        return pa.memory_map(path)
    if path.startswith(_S3):
        return _s3(
            os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"), os.getpid()
        ).open_input_file(path.partition("://")[2])
    spelled = path if not path.startswith("file:") else "file://" + path.removeprefix("file:").replace("//", "", 1)
    filesystem, name = pafs.FileSystem.from_uri(spelled)
    return filesystem.open_input_file(name)


@lru_cache(maxsize=4)
def _s3(endpoint: str | None, _pid: int) -> pafs.FileSystem:
    """One for each process: its threads do not survive a fork."""
    return pafs.S3FileSystem(endpoint_override=endpoint)


class _reading:
    """Storage trouble becomes `ServerUnavailable`: the read is tried again, from where it stopped."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError | pa.ArrowException):
            raise ClusterUnavailable(address=self._path, reason=f"Fluss's remote storage: {error}") from error
