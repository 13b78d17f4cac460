# SPDX-License-Identifier: Apache-2.0
"""Files that snapshots reference: data files through manifests and manifest lists."""

from __future__ import annotations

import datetime
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pypaimon.deletionvectors.deletion_vector import DeletionVector
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.table.source.deletion_file import DeletionFile
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from lakeward.lake.metadatabounds import check_positions
from lakeward.lake.paimon.meta.connection import BoundedManifests
from lakeward.lake.paimon.meta.history import PaimonSnapshot, table_folder
from lakeward.lake.paimon.meta.layout import find_address, is_clean
from lakeward.lake.s3files import allowed_of
from lakeward.lake.tablefiles import plain_path
from lakeward.model import BUCKET, OFFSET, PARTITION_SEPARATOR, Bucket, OffsetRange

_NONE = np.array([], np.int64)


def load_vectors(lake_table: Any, index_manifest: str | None) -> dict[str, Any]:
    """Loads the place of each deletion vector, by the name of its data file."""
    index = IndexManifestFile(lake_table)
    index.file_io = BoundedManifests(lake_table)
    index_entries = index.read(index_manifest) if index_manifest else []
    entries = [e for e in index_entries if e.index_file.index_type == IndexManifestFile.DELETION_VECTORS_INDEX]
    paths = lake_table.path_factory()
    return {
        name: DeletionFile(
            paths.bucket_index_path(tuple(e.partition.values), e.bucket, e.index_file, lake_table.file_io),
            vector.offset,
            vector.length,
            vector.cardinality,
        )
        for e in entries
        for name, vector in (e.index_file.dv_ranges or {}).items()
    }


def load_dead(lake_table: Any, vector: Any | None) -> npt.NDArray[np.int64]:
    """Reads positions, ascending."""
    if vector is None:
        return _NONE
    found = DeletionVector.read(lake_table.file_io, vector)
    check_positions(found.get_cardinality())
    return np.sort(np.fromiter(found.bit_map(), np.int64))


def without_dead(rows: pa.Table, dead: npt.NDArray[np.int64], start: int) -> pa.Table:
    """`start`: the position of the first row in its file."""
    first, last = np.searchsorted(dead, (start, start + rows.num_rows))
    if first == last:
        return rows
    live = np.ones(rows.num_rows, np.bool_)
    live[dead[first:last] - start] = False
    return rows.filter(pa.array(live))


ADD, DELETE = 0, 1
UNAWARE = "-1"
"""Value of option `bucket` for a lake table without buckets."""


@dataclass(frozen=True)
class Entry:
    """A data file that a manifest adds or removes; `raw` is pypaimon's entry."""

    raw: Any
    path: str
    partition: Mapping[str, str]
    bucket: Bucket | None
    is_by_offset: bool = True
    """The highest offset of a key's rows counts; else the highest sequence number, as in tables that Fluss made."""

    vector: Any = None
    """Place of the file's deletion vector for pypaimon; None without one."""

    is_clean: bool = False
    placed: OffsetRange | None = None
    """Offsets of a clean log table's file, if known."""

    @property
    def file(self) -> Any:
        return self.raw.file

    @property
    def key(self) -> str:
        return self.path

    @property
    def offsets(self) -> OffsetRange | None:
        """None also for rows of a KV snapshot of Fluss, which have no offsets."""
        if self.is_clean:
            return self.placed
        bounds = _bounds(self.file, OFFSET)
        return None if bounds is None or bounds[0] < 0 else OffsetRange(bounds[0], bounds[1] + 1)

    @property
    def first_offset(self) -> int | None:
        """Returns the offsets of a clean log table's file; None if they are unknown or have gaps."""
        return self.placed.start if self.placed is not None and len(self.placed) == int(self.file.row_count) else None

    @property
    def ages(self) -> OffsetRange | None:
        """Orders a PK table's files by the age of their rows."""
        if self.is_by_offset:
            return self.offsets
        return OffsetRange(int(self.file.min_sequence_number), int(self.file.max_sequence_number) + 1)


@dataclass(frozen=True)
class Reached:
    """Paths by the file that names them: manifests name `content`, lists name `manifests`."""

    content: frozenset[str]
    manifests: frozenset[str]
    lists: frozenset[str]

    @property
    def all(self) -> set[str]:
        return {*self.content, *self.manifests, *self.lists}

    def deletion_order(self, kept: set[str]) -> list[str]:
        """Returns paths so that a file comes before those that name it: after a crash the rest can still be found."""
        return [path for layer in (self.content, self.manifests, self.lists) for path in sorted(layer - kept)]


class Manifests:
    def __init__(self, lake_table: Any) -> None:
        self.table = lake_table
        self.lists, self.files = ManifestListManager(lake_table), ManifestFileManager(lake_table)
        self.lists.file_io = self.files.file_io = BoundedManifests(lake_table)
        self.folder = os.path.join(table_folder(lake_table), "manifest")
        self.allowed = allowed_of(lake_table)
        self._is_by_offset, self._is_clean = is_by_offset(lake_table), is_clean(lake_table)

    def metas(self, snapshot: PaimonSnapshot | None) -> list[Any]:
        """Returns the manifests of all live files."""
        names = () if snapshot is None else (snapshot.body["baseManifestList"], snapshot.body["deltaManifestList"])
        return [meta for name in names for meta in self._read_list(name)]

    def live(self, snapshot: PaimonSnapshot | None) -> list[Entry]:
        raws: dict[Hashable, Any] = {}
        for raw in self._raws(self.metas(snapshot)):
            if raw.kind == ADD:
                raws[_key(raw)] = raw
            else:
                raws.pop(_key(raw), None)
        found = [self.entry(raw) for raw in raws.values()]
        vectors = {} if snapshot is None else self._vectors(snapshot.body.get("indexManifest"))
        return [replace(e, vector=vectors.get(e.file.file_name)) for e in found] if vectors else found

    def _vectors(self, index_manifest: str | None) -> dict[str, Any]:
        if index_manifest:
            self._check_name(index_manifest)
        vectors = load_vectors(self.table, index_manifest)
        for vector in vectors.values():
            self.allowed.check(plain_path(str(vector.dv_index_path)))
        return vectors

    def merged(self, metas: Iterable[Any]) -> list[Any]:
        """Merges entries of adjacent manifests: files both added and removed are left out."""
        found: dict[Hashable, Any] = {}
        for raw in self._raws(metas):
            if found.pop(_key(raw), None) is None:
                found[_key(raw)] = raw
        return list(found.values())

    def changed(self, snapshot: PaimonSnapshot) -> list[Entry]:
        """Returns the entries that the snapshot itself added and removed."""
        return list(self._entries(self._read_list(snapshot.body["deltaManifestList"])))

    def reach(self, lists: Iterable[str], *, is_gone_ok: bool = False) -> Reached:
        """Returns all files that these manifest lists reference. `is_gone_ok`: skips missing files; otherwise raises,
        as no file may be deleted then."""
        missing = (FileNotFoundError, RuntimeError) if is_gone_ok else ()
        names, content, manifests = set(lists), set[str](), dict[str, Any]()
        for name in names:
            with suppress(*missing):
                manifests |= {m.file_name: m for m in self._read_list(name)}
        for meta in manifests.values():
            with suppress(*missing):
                content |= {e.path for e in self._entries([meta])}
        inside = self.folder
        return Reached(
            frozenset(content),
            frozenset(os.path.join(inside, name) for name in manifests),
            frozenset(os.path.join(inside, name) for name in names),
        )

    def _entries(self, metas: Iterable[Any]) -> Iterator[Entry]:
        return map(self.entry, self._raws(metas))

    def _raws(self, metas: Iterable[Any]) -> Iterator[Any]:
        for meta in metas:
            self._check_name(meta.file_name)
            yield from self.files.read(meta.file_name, drop_stats=False)

    def _read_list(self, name: str) -> list[Any]:
        self._check_name(name)
        return list(self.lists.read(name))

    def _check_name(self, name: str) -> None:
        """Returns the path of a file in the table's folder of manifests. Raises `LakePathRefused`."""
        self.allowed.check(os.path.join(self.folder, name))

    def entry(self, raw: Any) -> Entry:
        values = tuple(raw.partition.values)
        path = raw.file.external_path or canonical_data_file_path(self.table, values, raw.bucket, raw.file.file_name)
        self.allowed.check(plain_path(str(path)))
        raw.file.file_path = path
        texts = {k: value_text(v) for k, v in zip(self.table.partition_keys, values, strict=True)}
        address = find_address(raw.file) if self._is_clean and not self.table.table_schema.primary_keys else None
        number, placed = (raw.bucket, None) if address is None else address
        if address is None and str(self.table.options.bucket()) == UNAWARE:
            bounds = None if self._is_clean else _bounds(raw.file, BUCKET)
            number = bounds[0] if bounds is not None and bounds[0] == bounds[1] else None
        bucket = None if number is None else Bucket(PARTITION_SEPARATOR.join(texts.values()), number)
        return Entry(
            raw, plain_path(str(path)), texts, bucket, self._is_by_offset, is_clean=self._is_clean, placed=placed
        )


def _key(raw: Any) -> Hashable:
    """Identifies a file more cheaply than its path, which is the most expensive part of an entry."""
    return tuple(raw.partition.values), raw.bucket, raw.file.file_name, raw.file.external_path


def is_by_offset(lake_table: Any) -> bool:
    """Whether the highest offset of a key's rows counts. In a table that Fluss made it is the sequence number."""
    return lake_table.table_schema.options.get("sequence.field") == OFFSET or not lake_table.table_schema.primary_keys


def value_text(value: Any) -> str:
    """Spells a partition's value as in the partition's name."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def _bounds(file: Any, column: str) -> tuple[int, int] | None:
    """Returns (lowest, highest) of a column by the file's statistics."""
    stats = file.value_stats
    names = [f.name for f in stats.min_values.fields]
    if column not in names:
        return None
    at = names.index(column)
    low, high = stats.min_values.get_field(at), stats.max_values.get_field(at)
    return None if low is None or high is None else (int(low), int(high))
