# SPDX-License-Identifier: Apache-2.0
"""Names and places of our files. Every name begins with the round's prefix, in both folders."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from urllib.parse import unquote, urlparse

from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakeward.model import Bucket, RoundId, SnapshotSplit, Split
from lakeward.spi import StoredFile

OURS = "lw-"
LIVE = "live-"
"""Prefix of the round ids of live snapshots. Their files belong to the live catalog, which deletes them."""

CACHE_SUFFIX = ".offsets"
_UNSAFE = re.compile(r"[^A-Za-z0-9=_-]")
_SLUG_LENGTH = 40


def data_folder(location: str, properties: Mapping[str, str]) -> str:
    return properties.get("write.data.path", f"{location.rstrip('/')}/data").rstrip("/")


def metadata_folder(location: str, properties: Mapping[str, str]) -> str:
    return properties.get("write.metadata.path", f"{location.rstrip('/')}/metadata").rstrip("/")


def round_prefix(round_id: RoundId) -> str:
    return f"{OURS}{round_id}-"


def data_name(round_id: RoundId, split: Split, attempt: int, number: int) -> str:
    """Name of a data file: round, split, attempt and a count; a random suffix distinguishes two writers with the same
    attempt."""
    kind = "s" if isinstance(split, SnapshotSplit) else "l"
    where = f"{_bucket_slug(split.bucket)}-{kind}{split.start}.{split.index}"
    return f"{round_prefix(round_id)}{where}-{attempt}-{number}-{uuid.uuid4().hex[:8]}.parquet"


def keys_name(round_id: RoundId, split: Split, attempt: int, number: int) -> str:
    """Name of a file of keys to delete."""
    return data_name(round_id, split, attempt, number).replace(".parquet", "-keys.parquet")


def _bucket_slug(bucket: Bucket) -> str:
    if not bucket.partition:
        return str(bucket.number)
    slug = _UNSAFE.sub("_", bucket.partition)
    if slug != bucket.partition or len(slug) > _SLUG_LENGTH:
        slug = f"{slug[:_SLUG_LENGTH]}.{blake2b(bucket.partition.encode(), digest_size=4).hexdigest()}"
    return f"{slug}.{bucket.number}"


def metadata_name(version: int, mark: str | None, table: uuid.UUID) -> str:
    """Name of a metadata file as other catalogs use it: version, then a UUID. Ours begins with the catalog's mark and
    ends with the end of the table's UUID, so that a missing file still identifies its table."""
    name = str(uuid.uuid4())
    return f"{version:05d}-{name if mark is None else f'{mark}{name[8:24]}{table.hex[-12:]}'}.metadata.json"


def names_table(name: str, mark: str, table: uuid.UUID) -> bool:
    """Whether the catalog of this mark gives this name to a metadata file of this table."""
    return carries(name, mark) and name.endswith(f"-{table.hex[-12:]}.metadata.json")


def carries(name: str, mark: str) -> bool:
    """Whether it is the name of a metadata file that the catalog of this mark wrote."""
    return re.fullmatch(rf"\d+-{mark}-[0-9a-f-]{{27}}\.metadata\.json", name.rpartition("/")[2]) is not None


def cache_path(data_path: str) -> str:
    return data_path + CACHE_SUFFIX


def is_ours(path: str) -> bool:
    return path.rpartition("/")[2].startswith(OURS)


def is_live(path: str) -> bool:
    return path.rpartition("/")[2].startswith(f"{OURS}{LIVE}")


def is_local(path: str) -> bool:
    return urlparse(path).scheme in ("", "file")


def canonical(path: str) -> str:
    """Returns the canonical spelling of a path: engines write `file:/a`, `file:///a`, `/a` and `s3a://` for the same
    file."""
    parsed = urlparse(path)
    if parsed.scheme in ("", "file"):
        return f"file://{parsed.path}"
    scheme = "s3" if parsed.scheme in ("s3a", "s3n") else parsed.scheme
    return f"{scheme}://{parsed.netloc}{parsed.path}"


def list_folder(io: PyArrowFileIO, folder: str) -> Iterator[StoredFile]:
    filesystem, path = _filesystem(io, folder)
    root = canonical(folder)
    for info in filesystem.get_file_info(FileSelector(path, allow_not_found=True, recursive=False)):
        if info.type == FileType.File and not info.base_name.endswith(CACHE_SUFFIX):
            modified = info.mtime_ns // 1_000_000 if info.mtime_ns is not None else 0
            yield StoredFile(path=f"{root}/{info.base_name}", size_bytes=info.size, modified_at_ms=modified)


def delete_file(io: PyArrowFileIO, path: str) -> int:
    """Deletes a file; returns the bytes freed, 0 if it does not exist."""
    filesystem, name = _filesystem(io, path)
    info = filesystem.get_file_info(name)
    if info.type == FileType.NotFound:
        return 0
    try:
        filesystem.delete_file(name)
    except FileNotFoundError:
        return 0
    return int(info.size or 0)


def _filesystem(io: PyArrowFileIO, path: str) -> tuple[FileSystem, str]:
    scheme, netloc, name = io.parse_location(path, io.properties)
    return io.fs_by_scheme(scheme, netloc), name


def sync_files(paths: Iterable[str]) -> None:
    """Syncs files of any writer, as the system has one copy of a file's pages. Without it a power failure may leave a
    catalog that names empty files, since only the catalog's own database is synced. Raises `OSError`."""
    local_files = [local for local in map(_local, paths) if local is not None]
    for path in (*local_files, *dict.fromkeys(map(os.path.dirname, local_files))):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _local(path: str) -> str | None:
    parsed = urlparse(path)
    if parsed.scheme not in ("", "file"):
        return None
    return parsed.path if os.path.exists(parsed.path) else unquote(parsed.path)
