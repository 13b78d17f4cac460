# SPDX-License-Identifier: Apache-2.0
"""A table's snapshots as they are kept in its folder, our mark on the newest, and what they say of our rounds."""

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
    """One snapshot file: Paimon's JSON, kept as it is."""

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
        """The properties, with the commit user where it is a tiering job's, of Fluss or ours, and the rows that an
        append added, under Iceberg's name. Paimon's snapshots do not say files or bytes."""
        facts = {COMMIT_USER_KEY: COMMIT_USER} if self.is_ours else {}
        if self.body.get("commitKind") == "APPEND" and "deltaRecordCount" in self.body:
            facts["added-records"] = str(self.body["deltaRecordCount"])
        return {**self.properties, **facts}

    @property
    def is_ours(self) -> bool:
        """Did a round write it, ours or one of Fluss's own job? A compaction of others need not say offsets."""
        is_round = self.body.get("commitUser") == COMMIT_USER and self.body["commitKind"] != "COMPACT"
        return is_round or OFFSETS_KEY in self.properties

    @property
    def owner(self) -> TableId | None:
        """The table id that it says; a Fluss job's is in the path of its offsets."""
        found = self.properties.get(TABLE_ID_KEY) or table_id_in(self.properties.get(OFFSETS_KEY, ""))
        return None if found is None else TableId(found)

    @property
    def is_rewrite(self) -> bool:
        """Of ours: it copies what the round before it says of itself."""
        return REWRITE_KEY in self.properties

    @property
    def operation(self) -> str:
        """In the plug point's words."""
        return _OPERATIONS.get(self.body["commitKind"], "append")

    @property
    def lists(self) -> tuple[str, ...]:
        """Names of its manifest lists."""
        keys = ("baseManifestList", "deltaManifestList", "changelogManifestList")
        return tuple(self.body[k] for k in keys if self.body.get(k))

    def is_same(self, other: PaimonSnapshot) -> bool:
        """A number is used again after a rollback; a manifest list's name is not."""
        return (self.number, self.lists) == (other.number, other.lists)


@dataclass(frozen=True)
class PaimonHistory:
    """As it was when it was loaded: the numbers there were. Snapshots are read when they are asked for."""

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
        """Our newest snapshot, as its commit left it. Our tag is the same, and keeps its files from others' expiry; but
        a rollback takes tags along. Of a broken file the tag says the same, until the next commit writes both."""
        for path in (mark_path(self.folder), self._tag_path):
            if (copy := self._find_copy(path)) is not None:
                return copy
        return None

    @cached_property
    def kept(self) -> Mapping[int, PaimonSnapshot]:
        """What expiry left of others: snapshots that a tag or our mark still has, by number."""
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
        """Oldest first."""
        return sorted({**self.kept, **{s.number: s for s in self.newest_first()}}.values(), key=lambda s: s.number)

    def newest_first(self, from_number: int | None = None) -> Iterator[PaimonSnapshot]:
        """A snapshot (default: the head) and those before it; the tagged one too where expiry left only the tag."""
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
        """Of the first snapshot since then: a file that was made at that time is in it or in one soon after."""

        def is_since(number: int) -> bool:
            snapshot = self.find(number)
            return snapshot is not None and int(snapshot.body["timeMillis"]) >= (made_at_ms or 0)

        at = bisect_left(self.numbers, True, key=is_since)
        return self.numbers[min(at, len(self.numbers) - 1)] if self.numbers else 0

    def tags(self) -> list[PaimonSnapshot]:
        """Every tag, ours and others'."""
        folder = os.path.dirname(self._tag_path)
        paths = [os.path.join(folder, n) for n in self.files.names(folder) if n.startswith("tag-")]
        found = (self._find_copy(p) if p == self._tag_path else self._load(p) for p in paths)
        return [tag for tag in found if tag is not None]

    @property
    def owner(self) -> TableId | None:
        """The table id that our newest snapshot carries."""
        return next((s.owner for s in self.newest_first() if s.owner is not None), None)

    def is_behind(self, mark: PaimonSnapshot) -> bool:
        """Is it an ancestor of the head, or the head itself, as far as the retained snapshots tell?"""
        if not self.numbers or self.numbers[-1] < mark.number:
            return False
        there = self.find(mark.number)
        return there is None or there.is_same(mark)

    def offsets(self, snapshot_id: SnapshotId, properties: Mapping[str, str]) -> OffsetMap:
        """Of a round, ours or one of Fluss's own job. Raises `LakeTampered`."""
        text = properties.get(OWN_OFFSETS_KEY, properties.get(OFFSETS_KEY, ""))
        try:
            body = json.loads(text if text.startswith("{") else self._read_offsets(text))
            return OffsetMap.from_json(body) if "offsets" in body else decode_fluss_offsets(body, self.partitions)
        except (OSError, ValueError, KeyError, TypeError, InvalidRequest, LakePathRefused) as error:
            raise LakeTampered(table=self.table, snapshot=snapshot_id, what=OFFSETS_KEY, reason=str(error)) from error

    def _read_offsets(self, path: str) -> str:
        """Of a Fluss job: in Fluss's own storage, which is a folder or where the lake is."""
        text = self.files.read_offsets_of_fluss(path.removeprefix("file:")) if path else None
        if text is None:
            raise ValueError(f"there is no file {path}" if path else "the snapshot says none")
        return text

    @property
    def _tag_path(self) -> str:
        return tag_path(self.folder, TAG)

    def _find_copy(self, path: str) -> PaimonSnapshot | None:
        """Of our newest snapshot; None where there is none, or a broken one that the snapshots make up for. Raises
        `LakeTampered` where no snapshot of ours is left that would."""
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
    """Does its catalog take commits, and keep its schema?"""
    return bool(lake_table.catalog_environment.supports_version_management)


def table_folder(lake_table: Any) -> str:
    return plain_path(str(lake_table.table_path))


def snapshot_numbers(files: TableFiles, folder: str) -> tuple[int, ...]:
    """Ascending. By listing: the hint `LATEST` may lag."""
    names = files.names(os.path.join(folder, "snapshot"))
    return tuple(sorted(int(m[1]) for m in map(_NAME.match, names) if m))


def snapshot_path(folder: str, number: int) -> str:
    return os.path.join(folder, "snapshot", f"snapshot-{number}")


def tag_path(folder: str, name: str) -> str:
    return os.path.join(folder, "tag", f"tag-{name}")


def mark_path(folder: str) -> str:
    """In a folder that Paimon's own upkeep does not look into."""
    return os.path.join(folder, "_lakeward", "newest")
