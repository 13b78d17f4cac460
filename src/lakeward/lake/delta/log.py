# SPDX-License-Identifier: Apache-2.0
"""A table's `_delta_log` folder: what versions there are, the table at one of them, and the next entry."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lakeward.errors import LakeSchemaBroken, LakeTableGone, LakeTampered, LakewardError, SnapshotGone
from lakeward.lake.delta.actions import Action, DeltaTableState, LogEntry
from lakeward.lake.delta.checkpoint import read_checkpoint, write_checkpoint
from lakeward.lake.delta.durable import create_whole, lake_errors, replace_whole
from lakeward.model.ids import SnapshotId

LOG_FOLDER = "_delta_log"
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_TEMPORARY = re.compile(r"\..*\.tmp")
_TEMPORARY_S = 24 * 3600
"""A temporary file this old is of a process that died."""

_KNOWN_FEATURES = frozenset({"deletionVectors", "domainMetadata", "timestampNtz", "appendOnly", "invariants"})
_INTERVAL_KEY, _INTERVAL = "delta.checkpointInterval", 10
"""Versions between checkpoints, and Delta's own default of it."""


@dataclass(frozen=True)
class Listing:
    """`entries`: versions with an entry. `checkpoints`: version -> names of its files."""

    entries: tuple[int, ...]
    checkpoints: dict[int, tuple[str, ...]]

    @cached_property
    def versions(self) -> tuple[int, ...]:
        """Those that can be read, with their entries: each follows the one before, the first stands on a checkpoint or
        is the table's first. What lies below is left over from a clean-up."""
        kept: list[int] = []
        for version in reversed(self.entries):
            if kept and version != kept[-1] - 1:
                break
            kept.append(version)
        start = min((c for c in self.checkpoints if kept and c >= kept[-1] - 1), default=None)
        if kept and kept[-1] > 0:
            kept = [v for v in kept if start is not None and v >= start]
        return tuple(reversed(kept))


class DeltaLog:
    """Reads anew with each call: other processes write. Raises `LakeUnavailable` where the folder does not answer."""

    def __init__(self, root: Path, table: str) -> None:
        self.root, self.table = root, table
        self.folder = root / LOG_FOLDER

    def listing(self) -> Listing:
        entries, parts = [], dict[int, dict[str, int]]()
        with lake_errors(self.table, "list the log of"):
            names = os.listdir(self.folder) if self.folder.is_dir() else []
        for name in names:
            if entry := _ENTRY.fullmatch(name):
                entries.append(int(entry[1]))
            elif part := _CHECKPOINT.fullmatch(name):
                parts.setdefault(int(part[1]), {})[name] = int(part[3] or 1)
        whole = {v: tuple(sorted(p)) for v, p in parts.items() if len(p) >= max(p.values())}
        return Listing(tuple(sorted(entries)), whole)

    def load(self, version: int | None = None, listing: Listing | None = None) -> DeltaTableState:
        """The table at a version, by default the newest. Raises `LakeTableGone`, `SnapshotGone`, `LakeSchemaBroken`."""
        listing = listing or self.listing()
        if not listing.versions:
            raise LakeTableGone(table=self.table)
        wanted = listing.versions[-1] if version is None else version
        if wanted not in listing.versions:
            raise self.gone(wanted)
        start = max((c for c in listing.checkpoints if c <= wanted), default=-1)
        with lake_errors(self.table, "read a checkpoint of"):
            paths = [self.folder / name for name in listing.checkpoints.get(start, ())]
            state = DeltaTableState(start).after(start, read_checkpoint(paths)) if paths else DeltaTableState(-1)
        for entry in self.entries(range(start + 1, wanted + 1)):
            state = state.after(entry.version, entry.actions)
        self._check_features(state)
        return state

    def entries(self, versions: Sequence[int]) -> Iterator[LogEntry]:
        for version in versions:
            yield self.entry(version)

    def entry(self, version: int) -> LogEntry:
        """Raises `SnapshotGone`, `LakeTampered`."""
        path = self.path(version)
        try:
            with lake_errors(self.table, "read the log of"):
                text, written = path.read_text(), path.stat().st_mtime_ns // 1_000_000
            return LogEntry(version, tuple(json.loads(line) for line in text.splitlines() if line), written)
        except ValueError as error:
            raise LakeTampered(table=self.table, snapshot=str(version), what=path.name, reason=str(error)) from error

    def snapshots(self, listing: Listing | None = None, since: int = -1) -> list[LogEntry]:
        """Entries that made a snapshot which has not expired, oldest first."""
        listing = listing or self.listing()
        expired = self.load(listing=listing).expired if listing.versions else frozenset()
        wanted = [v for v in listing.versions if v > since and v not in expired]
        return [e for e in self.entries(wanted) if e.is_snapshot]

    def find_head(self, listing: Listing) -> LogEntry | None:
        """The newest snapshot."""
        newest_first = self.entries(listing.versions[::-1])
        return next((e for e in newest_first if e.is_snapshot), None)

    def append(self, version: int, actions: Sequence[Action]) -> bool:
        """Makes exactly this version; false where it is there. One that was cleaned away is there, too."""
        text = "".join(json.dumps(a, separators=(",", ":")) + "\n" for a in actions)
        with lake_errors(self.table, "write the log of"):
            self.folder.mkdir(parents=True, exist_ok=True)
            if not create_whole(self.path(version), text.encode()):
                return False
            if version in self.listing().versions:
                return True
            self.path(version).unlink(missing_ok=True)
            return False

    def checkpoint_if_due(self, version: int) -> None:
        """After a commit of this version. That it cannot be written delays it only."""
        try:
            listing = self.listing()
            newest = max((c for c in listing.checkpoints if c <= version), default=0)
            state = self.load(version, listing)
            if version - newest < int(state.properties.get(_INTERVAL_KEY, _INTERVAL)):
                return
            size = write_checkpoint(self.folder / f"{version:020d}.checkpoint.parquet", state)
            last = json.dumps({"version": version, "size": size}).encode()
            replace_whole(self.folder / "_last_checkpoint", last)
        except (OSError, LakewardError):
            return

    def clean(self, oldest: int) -> None:
        """Deletes what no version from `oldest` on needs, and what processes that died left. Safe to repeat."""
        listing = self.listing()
        start = max((c for c in listing.checkpoints if c <= oldest), default=0)
        names = [self.path(v).name for v in listing.entries if v < start]
        names += [name for v, parts in listing.checkpoints.items() if v < start for name in parts]
        with lake_errors(self.table, "clean the log of"):
            with os.scandir(self.folder) as files:
                aside = [f for f in files if _TEMPORARY.fullmatch(f.name)]
                names += [f.name for f in aside if time.time() - f.stat().st_mtime > _TEMPORARY_S]
            for name in sorted(names):
                (self.folder / name).unlink(missing_ok=True)

    def path(self, version: int) -> Path:
        return self.folder / f"{version:020d}.json"

    def gone(self, version: SnapshotId | int) -> SnapshotGone:
        return SnapshotGone(table=self.table, snapshot=str(version), advice="read again from the newest one")

    def _check_features(self, state: DeltaTableState) -> None:
        features = {*(state.protocol.get("readerFeatures") or ()), *(state.protocol.get("writerFeatures") or ())}
        if unknown := sorted(features - _KNOWN_FEATURES):
            diff = f"others gave it table features that rounds do not keep ({', '.join(unknown)}); drop those first"
            raise LakeSchemaBroken(table=self.table, diff=diff)
        if "domainMetadata" not in features:
            raise LakeSchemaBroken(table=self.table, diff="it has not the table feature domainMetadata")
