# SPDX-License-Identifier: Apache-2.0
"""A table's folder: its versions, the table at one of them, and the next one.

The library builds a version in a separate folder with only the manifest that it is based on, so it cannot move to
another head. The resulting manifest is put under its name in the table's folder, unless one exists there.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import lance

from lakeward.errors import LakeError, LakePathRefused, SnapshotGone
from lakeward.lake.lance import is_missing, lake_errors
from lakeward.lake.tablefiles import TableFiles
from lakeward.lake.warehouse import missing_table
from lakeward.model import SnapshotId
from lakeward.spi import OFFSETS_KEY, TAG

EXPIRED_KEY = "lakeward.expired"
"""Key of the expired versions whose manifests may still exist: in our commits, and in the table's configuration."""

ALTER_KEY = "lakeward.alter"
"""Key of a version in which we changed columns and no row."""

_REWRITE = "Rewrite"
_KEEPS_ROWS = frozenset({"UpdateConfig", "CreateIndex", "Project"})
_KEEPS_OLD_ROWS = frozenset({"Append", _REWRITE})


@dataclass(frozen=True)
class LanceVersion:
    """One version. `properties`: of its transaction. `restored`: the version that this one went back to."""

    version: int
    operation: str
    committed_at_ms: int
    properties: Mapping[str, str] = field(default_factory=dict)
    restored: int | None = None

    @classmethod
    def of(cls, dataset: lance.LanceDataset) -> LanceVersion:
        at_ms = int(dataset.get_version()["timestamp"].timestamp() * 1000)
        try:
            transaction = dataset.read_transaction(dataset.version)
        except TypeError:  # the library builds a wrong answer for a compaction that moved an index
            return cls(dataset.version, _REWRITE, at_ms)
        if transaction is None:
            return cls(dataset.version, "unknown", at_ms)
        operation = transaction.operation
        return cls(
            version=dataset.version,
            operation=type(operation).__name__,
            committed_at_ms=at_ms,
            properties=transaction.transaction_properties or {},
            restored=operation.version if isinstance(operation, lance.LanceOperation.Restore) else None,
        )

    @property
    def snapshot_id(self) -> SnapshotId:
        return SnapshotId(str(self.version))

    @property
    def keys(self) -> Mapping[str, str]:
        """Keys of our commit; empty for a foreign one, and for ours that made no snapshot."""
        return self.properties if OFFSETS_KEY in self.properties else {}

    @property
    def is_snapshot(self) -> bool:
        """False for a change of columns, properties or indexes alone: it has the rows of the version before."""
        return bool(self.keys) or not (self.operation in _KEEPS_ROWS or ALTER_KEY in self.properties)

    @property
    def may_remove_rows(self) -> bool:
        return self.is_snapshot and self.operation not in _KEEPS_OLD_ROWS


DATA, DELETIONS, TRANSACTIONS = "data", "_deletions", "_transactions"
_VERSIONS = "_versions"
_MANIFEST = re.compile(r"(\d{20})\.manifest")
_LAST = 2**64 - 1


class VersionCache:
    """Cached versions of a table; they never change."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.versions: dict[int, LanceVersion] = {}
        self.paths: dict[int, frozenset[str]] = {}
        self.checked: set[int] = set()
        self.stamp: tuple[int, str] | None = None
        """The newest version that was read, and its file's stamp: a different stamp means a different table."""


class LanceTable:
    """Reads a table's folder. Lists it again with each call, as other processes write; cached contents are not read
    again. Raises `LakeUnavailable` if folder or object store do not answer."""

    def __init__(
        self,
        files: TableFiles,
        root: str,
        name: str,
        storage_options: Mapping[str, str] | None = None,
        cache: VersionCache | None = None,
    ) -> None:
        self.files, self.root, self.name = files, root, name
        self.storage_options = dict(storage_options or {})
        self._cache = cache or VersionCache()

    def versions(self) -> tuple[int, ...]:
        """Lists versions, oldest first; none: the table does not exist."""
        with lake_errors(self.name, "list versions of"):
            names = self.files.names(f"{self.root}/{_VERSIONS}")
            known = self._cache.stamp
            if known is not None and self.files.stamp(self.path(known[0])) != known[1]:
                self._cache.reset()
        return tuple(sorted(_LAST - int(found[1]) for name in names if (found := _MANIFEST.fullmatch(name))))

    def newest(self) -> int:
        """Raises `LakeTableGone`."""
        versions = self.versions()
        if not versions:
            raise self.missing()
        return versions[-1]

    def missing(self) -> LakeError:
        return missing_table("lance", self.files, os.path.dirname(os.path.dirname(self.root)), self.name)

    def open(self, version: int) -> lance.LanceDataset:
        """Raises `SnapshotGone`."""
        with lake_errors(self.name, "open"):
            try:
                self.files.open_metadata(self.path(version)).close()
            except FileNotFoundError as error:
                raise self.gone(version) from error
            try:
                dataset = lance.dataset(self.root, version=version, storage_options=self.storage_options)
            except ValueError as error:
                if not is_missing(error):
                    raise
                raise self.gone(version) from error
        if version not in self._cache.checked:
            with lake_errors(self.name, "read a version of"):
                self._check_files(dataset)
            self._cache.checked.add(version)
        return dataset

    def _check_files(self, dataset: lance.LanceDataset) -> None:
        """Checks the paths in a manifest, which the library opens. Raises `LakePathRefused`."""
        for fragment in fragments_of(dataset):
            for file in fragment.files:
                self.files.check(f"{self.root}/{DATA}/{file.path}")
                self._check_base(file.base_id, file.path)
            if fragment.deletion_file is not None:
                self._check_base(fragment.deletion_file.base_id, fragment.deletion_file.path(fragment.id))

    def _check_base(self, base_id: int | None, path: str) -> None:
        """Checks a file of another dataset, whose path is relative to a list of folders in the manifest."""
        if base_id is not None:
            raise LakePathRefused(table=self.name, path=f"{path} of another dataset", location=self.root)

    def version(self, number: int) -> LanceVersion:
        """Raises as `open` does."""
        cached = self._cache.versions.get(number)
        if cached is None:
            with lake_errors(self.name, "read a version of"):
                cached = LanceVersion.of(self.open(number))
                stamp = self.files.stamp(self.path(number))
            self._cache.versions[number] = cached
            if stamp is not None and (self._cache.stamp is None or number > self._cache.stamp[0]):
                self._cache.stamp = number, stamp
        return cached

    def paths(self, number: int) -> frozenset[str]:
        """Returns the data and deletion files of a version, below the table's folder."""
        known = self._cache.paths.get(number)
        if known is None:
            known = self._cache.paths[number] = frozenset(_paths(self.root, self.open(number)))
        return known

    def newest_first(self, versions: Sequence[int]) -> Iterator[LanceVersion]:
        return (self.version(v) for v in reversed(versions))

    def commit(
        self, base: int, operation: lance.LanceOperation.BaseOperation, properties: Mapping[str, str] | None = None
    ) -> bool:
        """Creates exactly version `base` + 1; false if it exists, or did and was cleaned up."""
        with self.stage(base) as staged:
            dataset = apply(staged, base, operation, properties)
            return dataset is not None and self.publish(staged, base + 1)

    def publish(self, staged: str, version: int) -> bool:
        name = f"{_VERSIONS}/{manifest_name(version)}"
        with open(f"{staged}/{name}", "rb") as source:
            manifest = source.read()
        with lake_errors(self.name, "write a version of"):
            if not self.files.put_exclusively(f"{self.root}/{name}", manifest):
                return False
            later = next((v for v in self.versions() if v > version), None)
            if later is None or not self._is_older(later, version):
                return True
            self.files.delete(f"{self.root}/{name}")
            return False

    def _is_older(self, one: int, other: int) -> bool:
        """Checks that the version before exists: if not, this one was created late, where older versions were cleaned
        up."""
        made_at, other_at = (self.files.made_at(self.path(v)) for v in (one, other))
        return made_at is not None and other_at is not None and made_at < other_at

    @contextmanager
    def stage(self, base: int) -> Iterator[str]:
        """Makes a folder with this version's manifest and nothing else."""
        with tempfile.TemporaryDirectory(prefix="lakeward-lance-") as folder:
            with lake_errors(self.name, "read a version of"):
                manifest = self.files.read_bytes(self.path(base))
            if manifest is None:
                raise self.gone(base)
            os.makedirs(f"{folder}/{_VERSIONS}")
            with open(f"{folder}/{_VERSIONS}/{manifest_name(base)}", "wb") as out:
                out.write(manifest)
            yield folder

    def tag(self, name: str, version: int) -> None:
        """Tags a version, which protects it from other engines' clean-up. Raises `SnapshotGone`."""
        with lake_errors(self.name, "tag a version of"):
            manifest = self.files.read_bytes(self.path(version))
        if manifest is None:
            raise self.gone(version)
        self.tags.put(name, version, len(manifest))

    def referenced(self, versions: Sequence[int]) -> set[int]:
        """Returns the versions that a tag or a branch names; all of them if a tag cannot be read, except our own tag,
        which names our newest commit."""
        tags = self.tags.versions()
        if any(version is None for name, version in tags.items() if name != TAG):
            return set(versions)
        dataset = self.open(self.newest())
        with lake_errors(self.name, "list branches of"):
            parents = {int(b["parent_version"]) for b in dataset.branches.list().values()}
        return parents.union(v for v in tags.values() if v is not None).intersection(versions)

    @property
    def tags(self) -> LanceTags:
        return LanceTags(self.files, self.root, self.name)

    def path(self, version: int) -> str:
        return f"{self.root}/{_VERSIONS}/{manifest_name(version)}"

    def gone(self, version: SnapshotId | int) -> SnapshotGone:
        return SnapshotGone(table=self.name, snapshot=str(version), advice="read again from the newest one")


def apply(
    folder: str,
    base: int,
    operation: lance.LanceOperation.BaseOperation,
    properties: Mapping[str, str] | None = None,
) -> lance.LanceDataset:
    """Commits a version after `base` in a folder with a single writer."""
    transaction = lance.Transaction(
        read_version=base, operation=operation, transaction_properties=dict(properties or {})
    )
    dataset = lance.LanceDataset.commit(folder, transaction, max_retries=0)
    assert dataset.version == base + 1
    return dataset


def manifest_name(version: int) -> str:
    """Name of a version's manifest; the newest comes first in a listing."""
    return f"{_LAST - version:020d}.manifest"


def fragments_of(dataset: lance.LanceDataset) -> list[Any]:
    return [f.metadata for f in dataset.get_fragments()]


def _paths(root: str, dataset: lance.LanceDataset) -> Iterator[str]:
    for fragment in fragments_of(dataset):
        yield from (f"{root}/{DATA}/{file.path}" for file in fragment.files)
        if fragment.deletion_file is not None:
            yield f"{root}/{fragment.deletion_file.path(fragment.id)}"


_FOLDER, _SUFFIX = "_refs/tags", ".json"


@dataclass(frozen=True)
class LanceTags:
    files: TableFiles
    root: str
    table: str
    """Its name, for messages."""

    def versions(self) -> dict[str, int | None]:
        """Returns the version of each tag; None for a broken file."""
        with lake_errors(self.table, "list tags of"):
            names = self.files.names(f"{self.root}/{_FOLDER}")
        tags = [n.removesuffix(_SUFFIX) for n in names if n.endswith(_SUFFIX) and not n.startswith(".")]
        return {tag: None if (body := self._load(tag)) is None else body["version"] for tag in tags}

    def put(self, tag: str, version: int, manifest_bytes: int) -> None:
        """Moves the tag, or replaces its broken file. Safe to repeat."""
        old = self._load(tag) or {}
        if old.get("version") == version and old["manifestSize"] == manifest_bytes:
            return
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        new = {"branch": None, "version": version, "updatedAt": now, "manifestSize": manifest_bytes}
        body = {"createdAt": now, "metadata": {}, **old, **new}
        with lake_errors(self.table, "tag a version of"):
            self.files.put(self.path(tag), json.dumps(body, indent=2))

    def delete(self, tag: str) -> None:
        with lake_errors(self.table, "delete a tag of"):
            self.files.delete(self.path(tag))

    def path(self, tag: str) -> str:
        return f"{self.root}/{_FOLDER}/{tag}{_SUFFIX}"

    def _load(self, tag: str) -> Mapping[str, Any] | None:
        with lake_errors(self.table, "read a tag of"):
            data = self.files.read_bytes(self.path(tag))
        try:
            body = json.loads(data or b"")
        except ValueError:  # also bytes that are not UTF-8
            return None
        is_whole = isinstance(body, dict) and all(type(body.get(k)) is int for k in ("version", "manifestSize"))
        return body if is_whole else None
