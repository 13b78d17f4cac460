# SPDX-License-Identifier: Apache-2.0
"""A table's `_delta_log` folder: its versions, the table at one of them, and the next entry."""

from __future__ import annotations

import json
import os
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from lakeward.errors import LakeSchemaBroken, LakeTampered, LakewardError, SnapshotGone
from lakeward.lake.delta import lake_errors
from lakeward.lake.delta.meta.actions import MAPPING_KEY, Action, DeltaTableState, LogEntry
from lakeward.lake.delta.meta.checkpoint import read_checkpoint, write_checkpoint
from lakeward.lake.delta.meta.features import BY_NAME, KNOWN_FEATURES
from lakeward.lake.tablefiles import TableFiles, sync
from lakeward.lake.warehouse import missing_table
from lakeward.model import SnapshotId

LOG_FOLDER = "_delta_log"
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_TEMPORARY = re.compile(r"\..*\.tmp")
_TEMPORARY_MS = 24 * 3600 * 1000
"""Temporary files this old belong to a process that died."""

_INTERVAL_KEY, _INTERVAL = "delta.checkpointInterval", 10
"""The property for versions between checkpoints, and Delta's default."""


@dataclass(frozen=True)
class Listing:
    """Listed log files. `entries`: versions with an entry. `checkpoints`: version -> names of its files."""

    entries: tuple[int, ...]
    checkpoints: dict[int, tuple[str, ...]]

    @cached_property
    def versions(self) -> tuple[int, ...]:
        """Readable versions with their entries: each follows the one before, the first is based on a checkpoint or is
        the table's first. Lower versions are left over from a clean-up."""
        readable: list[int] = []
        for version in reversed(self.entries):
            if readable and version != readable[-1] - 1:
                break
            readable.append(version)
        start = min((c for c in self.checkpoints if readable and c >= readable[-1] - 1), default=None)
        if readable and readable[-1] > 0:
            readable = [v for v in readable if start is not None and v >= start]
        return tuple(reversed(readable))


class DeltaLog:
    """Reads the log folder. Lists it again with each call, as other processes write; cached contents are not read
    again. Raises `LakeUnavailable` if folder or object store do not answer."""

    def __init__(self, files: TableFiles, root: str, table: str, cache: LogCache | None = None) -> None:
        self.files, self.root, self.table = files, root, table
        self.folder = f"{root}/{LOG_FOLDER}"
        self._cache = cache or LogCache()

    def listing(self) -> Listing:
        entries, parts = [], dict[int, dict[str, int]]()
        with lake_errors(self.table, "list the log of"):
            names = self.files.names(self.folder)
            cached_stamp = self._cache.stamp
            if cached_stamp is not None and self.files.stamp(self.path(cached_stamp[0])) != cached_stamp[1]:
                self._cache.reset()
        for name in names:
            if entry := _ENTRY.fullmatch(name):
                entries.append(int(entry[1]))
            elif part := _CHECKPOINT.fullmatch(name):
                parts.setdefault(int(part[1]), {})[name] = int(part[3] or 1)
        complete_checkpoints = {v: tuple(sorted(p)) for v, p in parts.items() if len(p) >= max(p.values())}
        return Listing(tuple(sorted(entries)), complete_checkpoints)

    def load(self, version: int | None = None, listing: Listing | None = None) -> DeltaTableState:
        """Loads the table at a version, by default the newest. Raises `LakeTableGone`, `SnapshotGone`,
        `LakeSchemaBroken`."""
        listing = listing or self.listing()
        if not listing.versions:
            raise missing_table("delta", self.files, os.path.dirname(os.path.dirname(self.root)), self.table)
        requested = listing.versions[-1] if version is None else version
        if requested not in listing.versions:
            raise self.gone(requested)
        state = self._cache.find_state(requested) or DeltaTableState(-1)
        checkpoint = max((c for c in listing.checkpoints if c <= requested), default=-1)
        is_near = listing.versions[0] <= state.version + 1 and checkpoint - state.version < _INTERVAL
        if checkpoint > state.version and not is_near:
            with lake_errors(self.table, "read a checkpoint of"):
                paths = [f"{self.folder}/{name}" for name in listing.checkpoints[checkpoint]]
                state = DeltaTableState(checkpoint).after(checkpoint, read_checkpoint(self.files, paths))
        if state.version < requested:
            for number in range(state.version + 1, requested + 1):
                state = state.after(number, self.actions(number))
            with lake_errors(self.table, "look at the log of"):
                self._cache.keep_state(state, self.files.stamp(self.path(requested)))
        self._check_features(state)
        return state

    def actions(self, version: int) -> list[Action]:
        """Reads the actions of a version. Raises `LakeTampered`; `LakeUnavailable` if a clean-up deleted the entry
        meanwhile."""
        path = self.path(version)
        with lake_errors(self.table, "read the log of"):
            text = self.files.read(path)
            if text is None:
                raise FileNotFoundError(path)
        try:
            actions = [json.loads(line) for line in text.splitlines() if line]
        except ValueError as error:
            name = path.rpartition("/")[2]
            raise LakeTampered(table=self.table, snapshot=str(version), what=name, reason=str(error)) from error
        entry = LogEntry.parse(version, actions)
        self._cache.keep_entry(entry if entry.says_when else replace(entry, written_at_ms=self._written_at_ms(path)))
        return actions

    def entries(self, versions: Sequence[int]) -> Iterator[LogEntry]:
        for version in versions:
            yield self.entry(version)

    def entry(self, version: int) -> LogEntry:
        """Reads the entry of a version. Raises as `actions` does."""
        while (entry := self._cache.find_entry(version)) is None:
            self.actions(version)
        return entry

    def _written_at_ms(self, path: str) -> int:
        with lake_errors(self.table, "look at the log of"):
            return self.files.modified_at_ms(path) or 0

    def snapshots(self, listing: Listing | None = None, since: int = -1) -> list[LogEntry]:
        """Returns entries whose snapshot has not expired, oldest first."""
        listing = listing or self.listing()
        expired = self.load(listing=listing).expired if listing.versions else frozenset()
        wanted = [v for v in listing.versions if v > since and v not in expired]
        return [e for e in self.entries(wanted) if e.is_snapshot]

    def find_head(self, listing: Listing) -> LogEntry | None:
        """Returns the newest snapshot."""
        newest_first = self.entries(listing.versions[::-1])
        return next((e for e in newest_first if e.is_snapshot), None)

    def find_first(self, listing: Listing) -> LogEntry | None:
        """Returns the entry of the oldest version if a clean-up left it the first one with its rows: it is based on a
        checkpoint, and changed no row itself."""
        if listing.versions[0] == 0 or (first := self.entry(listing.versions[0])).is_snapshot:
            return None
        state = self.load(first.version, listing)
        return first if state.files or state.keys else None

    def append(self, version: int, actions: Sequence[Action]) -> bool:
        """Creates exactly this version; false if it exists, or did and was cleaned up."""
        text = "".join(json.dumps(a, separators=(",", ":")) + "\n" for a in actions)
        with lake_errors(self.table, "write the log of"):
            if not self.files.put_exclusively(self.path(version), text):
                return False
            if version in self.listing().versions:
                return True
            self.files.delete(self.path(version))
            return False

    def checkpoint_if_due(self, version: int) -> None:
        """Writes a checkpoint after a commit of this version, if one is due. If it fails, a later commit writes it."""
        try:
            listing = self.listing()
            newest = max((c for c in listing.checkpoints if c <= version), default=0)
            state = self.load(version, listing)
            if version - newest >= int(state.properties.get(_INTERVAL_KEY, _INTERVAL)):
                self.checkpoint(state)
        except (OSError, LakewardError):
            return

    def checkpoint(self, state: DeltaTableState) -> None:
        """Raises `OSError`."""
        path = f"{self.folder}/{state.version:020d}.checkpoint.parquet"
        size = write_checkpoint(self.files, path, state)
        last = f"{self.folder}/_last_checkpoint"
        self.files.put(last, json.dumps({"version": state.version, "size": size}))
        sync([last])

    def clean(self, oldest: int) -> None:
        """Deletes files that no version from `oldest` on needs, and temporary files of processes that died. Safe to
        repeat."""
        listing = self.listing()
        start = max((c for c in listing.checkpoints if c <= oldest), default=0)
        paths = [self.path(v) for v in listing.entries if v < start]
        paths += [f"{self.folder}/{name}" for v, parts in listing.checkpoints.items() if v < start for name in parts]
        with lake_errors(self.table, "clean the log of"):
            aside = [f for f in self.files.walk(self.folder) if _TEMPORARY.fullmatch(f.name)]
            paths += [f.path for f in aside if time.time() * 1000 - f.modified_at_ms > _TEMPORARY_MS]
            for path in sorted(paths):
                self.files.delete(path)

    def path(self, version: int) -> str:
        return f"{self.folder}/{version:020d}.json"

    def gone(self, version: SnapshotId | int) -> SnapshotGone:
        return SnapshotGone(table=self.table, snapshot=str(version), advice="read again from the newest one")

    def _check_features(self, state: DeltaTableState) -> None:
        features = {*(state.protocol.get("readerFeatures") or ()), *(state.protocol.get("writerFeatures") or ())}
        if unknown := sorted(features - KNOWN_FEATURES):
            diff = f"another engine enabled table features that rounds do not support: drop {', '.join(unknown)}"
            raise LakeSchemaBroken(table=self.table, diff=diff)
        if "domainMetadata" not in features:
            raise LakeSchemaBroken(table=self.table, diff="it does not have the table feature domainMetadata")
        if (mode := state.properties.get(MAPPING_KEY, BY_NAME)) not in (BY_NAME, "none"):
            raise LakeSchemaBroken(table=self.table, diff=f"another engine set {MAPPING_KEY} to {mode}; set it to name")


_ENTRIES = 20_000
"""The most entries in a cache: about 2 kB each, without the files that they name."""

_STATES = 4
"""The most states in a cache: the newest, and those that readers are pinned to. They share their files."""

T = TypeVar("T")


class LogCache:
    """Cached log contents of one table. Safe to use from several threads: two threads may read the same contents
    twice."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._entries, self._states = OrderedDict[int, LogEntry](), OrderedDict[int, DeltaTableState]()
        self.stamp: tuple[int, str] | None = None
        """The newest version that was read, and its file's stamp: a different stamp means a different table."""

    def find_entry(self, version: int) -> LogEntry | None:
        return self._entries.get(version)

    def keep_entry(self, entry: LogEntry) -> None:
        _keep(self._entries, entry.version, entry, _ENTRIES)

    def find_state(self, wanted: int) -> DeltaTableState | None:
        """Returns the newest cached state that is not after the version."""
        return max((s for v, s in list(self._states.items()) if v <= wanted), key=lambda s: s.version, default=None)

    def keep_state(self, state: DeltaTableState, stamp: str | None) -> None:
        _keep(self._states, state.version, state, _STATES)
        if stamp is not None and (self.stamp is None or state.version > self.stamp[0]):
            self.stamp = state.version, stamp


def _keep(kept: OrderedDict[int, T], version: int, value: T, most: int) -> None:
    kept[version] = value
    kept.move_to_end(version)
    while len(kept) > most:
        kept.popitem(last=False)
