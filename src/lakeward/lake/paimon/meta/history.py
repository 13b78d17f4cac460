# SPDX-License-Identifier: Apache-2.0
"""A table's snapshot files, our mark on the newest, and the properties of our rounds in them."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lakeward.errors import InvalidRequest, LakePathRefused, LakeTableGone, LakeTampered, LakeUnavailable, SnapshotGone
from lakeward.lake.allowedpaths import AllowedFiles
from lakeward.lake.s3files import files_of
from lakeward.lake.tablefiles import TableFiles, plain_path
from lakeward.model import OffsetMap, SnapshotId, TableId, TableInfo
from lakeward.spi import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    OFFSETS_KEY,
    OWN_OFFSETS_KEY,
    REWRITE_KEY,
    TABLE_ID_KEY,
    TAG,
    FlussPartitions,
    decode_fluss_offsets,
    find_partitions,
    table_id_in,
)

_NAME = re.compile(r"^snapshot-(\d+)$")
_OPERATIONS = {"APPEND": "append", "COMPACT": "replace", "OVERWRITE": "overwrite", "ANALYZE": "replace"}


@dataclass(frozen=True)
class PaimonSnapshot:
    """One snapshot file: Paimon's JSON, unchanged."""

    body: Mapping[str, Any]

    @property
    def number(self) -> int:
        return int(self.body["id"])

    @property
    def id(self) -> SnapshotId:
        return SnapshotId(str(self.number))

    @property
    def properties(self) -> Mapping[str, str]:
        return self.body.get("properties") or {}

    @property
    def summary(self) -> Mapping[str, str]:
        """Returns the properties, with the commit user if it is a tiering job's, of Fluss or ours, and the rows that an
        append added, under Iceberg's name. Paimon's snapshots have no numbers of files or bytes."""
        facts = {COMMIT_USER_KEY: COMMIT_USER} if self.is_ours else {}
        if self.body.get("commitKind") == "APPEND" and "deltaRecordCount" in self.body:
            facts["added-records"] = str(self.body["deltaRecordCount"])
        return {**self.properties, **facts}

    @property
    def is_ours(self) -> bool:
        """Whether a round wrote it, ours or one of Fluss's own job. Foreign compactions need not record offsets."""
        is_round = self.body.get("commitUser") == COMMIT_USER and self.body["commitKind"] != "COMPACT"
        return is_round or OFFSETS_KEY in self.properties

    @property
    def owner(self) -> TableId | None:
        """Returns its table id; a Fluss job's is in the path of its offsets."""
        found = self.properties.get(TABLE_ID_KEY) or table_id_in(self.properties.get(OFFSETS_KEY, ""))
        return None if found is None else TableId(found)

    @property
    def is_rewrite(self) -> bool:
        """Whether it is our rewrite, which copies the properties of the round before it."""
        return REWRITE_KEY in self.properties

    @property
    def operation(self) -> str:
        """Returns its operation in the plug point's words."""
        return _OPERATIONS.get(self.body["commitKind"], "append")

    @property
    def lists(self) -> tuple[str, ...]:
        """Returns the names of its manifest lists."""
        keys = ("baseManifestList", "deltaManifestList", "changelogManifestList")
        return tuple(self.body[k] for k in keys if self.body.get(k))

    def is_same(self, other: PaimonSnapshot) -> bool:
        """Identifies the snapshot: a number is used again after a rollback, the name of a manifest list is not."""
        return (self.number, self.lists) == (other.number, other.lists)


@dataclass(frozen=True)
class PaimonHistory:
    """History as loaded: the numbers at that time. Snapshots are read when they are needed."""

    files: AllowedFiles
    folder: str
    table: str
    numbers: tuple[int, ...]
    """Ascending."""

    partitions: FlussPartitions | None = None
    """Of a table of a Fluss cluster."""

    _read: dict[int, PaimonSnapshot | None] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, lake_table: Any, table: TableInfo) -> PaimonHistory:
        return cls.load(lake_table, str(table.path), find_partitions(table.descriptor))

    @classmethod
    def load(cls, lake_table: Any, table: str, partitions: FlussPartitions | None = None) -> PaimonHistory:
        files, folder = files_of(lake_table), table_folder(lake_table)
        try:
            if not is_managed(lake_table) and not files.names(os.path.join(folder, "schema")):
                raise LakeTableGone(table=table)
            return cls(files, folder, table, snapshot_numbers(files, folder), partitions)
        except OSError as error:
            raise LakeUnavailable(lake="paimon", what=f"list {folder}", reason=str(error)) from error

    @cached_property
    def head(self) -> PaimonSnapshot | None:
        return self.find(self.numbers[-1]) if self.numbers else None

    @cached_property
    def mark(self) -> PaimonSnapshot | None:
        """Returns our newest snapshot, as its commit wrote it. Our tag is the same, and protects its files from other
        engines' expiry; but a rollback removes tags. If the file is broken, the tag replaces it until the next commit
        writes both."""
        for path in (mark_path(self.folder), self._tag_path):
            if (copy := self._find_copy(path)) is not None:
                return copy
        return None

    @cached_property
    def kept(self) -> Mapping[int, PaimonSnapshot]:
        """Returns expired snapshots that a tag or our mark still has, by number."""
        named = [*self.tags(), *([] if self.mark is None else [self.mark])]
        return {s.number: s for s in named if s.number not in self.numbers and self.is_behind(s)}

    def find(self, number: int) -> PaimonSnapshot | None:
        if number not in self._read:
            self._read[number] = self._load(snapshot_path(self.folder, number))
        return self._read[number]

    def get(self, snapshot_id: SnapshotId) -> PaimonSnapshot:
        number = int(snapshot_id) if str(snapshot_id).isdigit() else -1
        snapshot = self.find(number) or self.kept.get(number)
        if snapshot is None:
            raise SnapshotGone(table=self.table, snapshot=str(snapshot_id), advice="read again from the newest one")
        return snapshot

    def retained(self) -> list[PaimonSnapshot]:
        """Returns snapshots, oldest first."""
        return sorted({**self.kept, **{s.number: s for s in self.newest_first()}}.values(), key=lambda s: s.number)

    def newest_first(self, from_number: int | None = None) -> Iterator[PaimonSnapshot]:
        """Yields a snapshot (default: the head) and those before it; also the tagged one if only the tag is left."""
        numbers = {n for n in self.numbers if from_number is None or n <= from_number}
        mark = self.mark
        if mark is not None and mark.number not in numbers and (not numbers or max(numbers) > mark.number):
            numbers |= {mark.number} if from_number is None or mark.number <= from_number else set()
        for number in sorted(numbers, reverse=True):
            snapshot = self.find(number) or (mark if mark is not None and mark.number == number else None)
            if snapshot is not None:
                yield snapshot

    def newest_ours(self, from_number: int | None = None) -> PaimonSnapshot | None:
        return next((s for s in self.newest_first(from_number) if s.is_ours), None)

    def number_at(self, made_at_ms: int | None) -> int:
        """Returns the number of the first snapshot since then: a file created at that time is in it or in one soon
        after."""

        def is_since(number: int) -> bool:
            snapshot = self.find(number)
            return snapshot is not None and int(snapshot.body["timeMillis"]) >= (made_at_ms or 0)

        at = bisect_left(self.numbers, True, key=is_since)
        return self.numbers[min(at, len(self.numbers) - 1)] if self.numbers else 0

    def tags(self) -> list[PaimonSnapshot]:
        """Returns every tag, ours and foreign ones."""
        folder = os.path.dirname(self._tag_path)
        paths = [os.path.join(folder, n) for n in self.files.names(folder) if n.startswith("tag-")]
        found = (self._find_copy(p) if p == self._tag_path else self._load(p) for p in paths)
        return [tag for tag in found if tag is not None]

    @property
    def owner(self) -> TableId | None:
        """Returns the table id in our newest snapshot."""
        return next((s.owner for s in self.newest_first() if s.owner is not None), None)

    def is_behind(self, mark: PaimonSnapshot) -> bool:
        """Whether it is the head or one of its ancestors, as far as the retained snapshots show."""
        if not self.numbers or self.numbers[-1] < mark.number:
            return False
        there = self.find(mark.number)
        return there is None or there.is_same(mark)

    def offsets(self, snapshot_id: SnapshotId, properties: Mapping[str, str]) -> OffsetMap:
        """Returns the offsets of a round, ours or one of Fluss's own job. Raises `LakeTampered`."""
        text = properties.get(OWN_OFFSETS_KEY, properties.get(OFFSETS_KEY, ""))
        try:
            body = json.loads(text if text.startswith("{") else self._read_offsets(text))
            return OffsetMap.from_json(body) if "offsets" in body else decode_fluss_offsets(body, self.partitions)
        except (OSError, ValueError, KeyError, TypeError, InvalidRequest, LakePathRefused) as error:
            raise LakeTampered(table=self.table, snapshot=snapshot_id, what=OFFSETS_KEY, reason=str(error)) from error

    def _read_offsets(self, path: str) -> str:
        """Reads the offsets of a Fluss job from Fluss's own storage, which is a folder or with the lake."""
        text = self.files.read_offsets_of_fluss(path.removeprefix("file:")) if path else None
        if text is None:
            raise ValueError(f"there is no file {path}" if path else "the snapshot says none")
        return text

    @property
    def _tag_path(self) -> str:
        return tag_path(self.folder, TAG)

    def _find_copy(self, path: str) -> PaimonSnapshot | None:
        """Reads the mark of our newest snapshot; None without one, or for a broken one that a snapshot replaces. Raises
        `LakeTampered` if none of our snapshots is left that could."""
        try:
            text = self.files.read(path)
            return None if text is None else PaimonSnapshot(dict(json.loads(text)))
        except OSError as error:
            raise LakeUnavailable(lake="paimon", what=f"read {path}", reason=str(error)) from error
        except (ValueError, TypeError) as error:
            if any(s is not None and s.is_ours for s in map(self.find, reversed(self.numbers))):
                return None
            raise LakeTampered(table=self.table, snapshot="none", what=path, reason=str(error)) from error

    def _load(self, path: str) -> PaimonSnapshot | None:
        try:
            text = self.files.read(path)
            return None if text is None else PaimonSnapshot(json.loads(text))
        except (OSError, ValueError) as error:
            raise LakeUnavailable(lake="paimon", what=f"read {path}", reason=str(error)) from error


def is_managed(lake_table: Any) -> bool:
    """Whether its catalog accepts commits, and stores its schema."""
    return bool(lake_table.catalog_environment.supports_version_management)


def table_folder(lake_table: Any) -> str:
    return plain_path(str(lake_table.table_path))


def snapshot_numbers(files: TableFiles, folder: str) -> tuple[int, ...]:
    """Lists snapshot numbers, ascending, not by the hint `LATEST`, which may be outdated."""
    names = files.names(os.path.join(folder, "snapshot"))
    return tuple(sorted(int(m[1]) for m in map(_NAME.match, names) if m))


def snapshot_path(folder: str, number: int) -> str:
    return os.path.join(folder, "snapshot", f"snapshot-{number}")


def tag_path(folder: str, name: str) -> str:
    return os.path.join(folder, "tag", f"tag-{name}")


def mark_path(folder: str) -> str:
    """Returns the mark's path, in a folder that Paimon's own upkeep ignores."""
    return os.path.join(folder, "_lakeward", "newest")
