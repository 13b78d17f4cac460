# SPDX-License-Identifier: Apache-2.0
"""A table's timeline in its folder: completed instants in that order, and those not completed."""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from lakeward.errors import LakeTampered, LakeUnavailable, SnapshotGone
from lakeward.lake.hudi.meta.avro import read_container
from lakeward.lake.hudi.meta.history import load_completions
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import SnapshotId

DATA_ACTIONS = ("commit", "deltacommit", "replacecommit")
"""Actions that make a snapshot: compactions complete as commit, clusterings as replacecommit."""

HISTORY = "history"
_COMPLETED = re.compile(r"^(\d{17})_(\d{17})\.(\w+)$")
_PENDING = re.compile(r"^(\d{17})(?:\.(\w+))?\.(requested|inflight)$")
_CACHED = 4096


@dataclass(frozen=True, order=True)
class HudiInstant:
    """A completed instant; instants are ordered by completion time."""

    completed: str
    requested: str
    action: str = field(compare=False)

    @property
    def id(self) -> SnapshotId:
        return SnapshotId(self.requested)

    @property
    def name(self) -> str:
        return f"{self.requested}_{self.completed}.{self.action}"

    @property
    def completed_at_ms(self) -> int:
        return to_ms(self.completed)


@dataclass(frozen=True)
class InstantMetadata:
    """Contents of a completed instant. `keys`: its extra metadata, without the schema."""

    operation: str
    stats: Sequence[Mapping[str, Any]]
    keys: Mapping[str, str]
    schema: str
    replaced: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class HudiTimeline:
    """A timeline as listed at one time."""

    files: TableFiles
    folder: str
    table: str
    instants: tuple[HudiInstant, ...]
    """Completed, of every action, oldest first."""

    pending: Mapping[str, frozenset[str]]
    """Names of files of instants that are not completed, by requested time."""

    @classmethod
    def load(cls, files: TableFiles, folder: str, table: str) -> HudiTimeline:
        try:
            names = files.names(folder)
        except OSError as error:
            raise LakeUnavailable(lake="hudi", what=f"list {folder}", reason=str(error)) from error
        completed = [HudiInstant(m[2], m[1], m[3]) for m in map(_COMPLETED.match, names) if m]
        done = {i.requested for i in completed}
        pending: dict[str, set[str]] = {}
        for match in filter(None, map(_PENDING.match, names)):
            if match[1] not in done:
                pending.setdefault(match[1], set()).add(match[0])
        return cls(files, folder, table, tuple(sorted(completed)), {k: frozenset(v) for k, v in pending.items()})

    @cached_property
    def snapshots(self) -> tuple[HudiInstant, ...]:
        return tuple(i for i in self.instants if i.action in DATA_ACTIONS)

    @property
    def head(self) -> HudiInstant | None:
        return self.snapshots[-1] if self.snapshots else None

    @cached_property
    def start(self) -> str | None:
        """The oldest instant; earlier ones were archived by some engine, and had been completed."""
        return min((*(i.requested for i in self.snapshots), *self.pending), default=None)

    @cached_property
    def _completions(self) -> dict[str, str]:
        return {i.requested: i.completed for i in self.snapshots}

    def completion_of(self, requested: str) -> str | None:
        """None: it is not completed, so readers do not see its files."""
        done = self._completions.get(requested)
        if done is None and self.start is not None and requested < self.start:
            return self._archived.get(requested, requested)
        return done

    @cached_property
    def _archived(self) -> Mapping[str, str]:
        folder = os.path.join(self.folder, HISTORY)
        try:
            return load_completions(self.files, folder)
        except OSError as error:
            raise LakeUnavailable(lake="hudi", what=f"read {folder}", reason=str(error)) from error
        except (ValueError, KeyError, pa.ArrowInvalid) as error:
            reason = str(error)
            raise LakeTampered(
                table=self.table, snapshot="none", what="its archived timeline", reason=reason
            ) from error

    def find(self, requested: str) -> HudiInstant | None:
        return next((i for i in self.snapshots if i.requested == requested), None)

    def before(self, instant: HudiInstant) -> HudiInstant | None:
        """Returns the snapshot before it."""
        at = bisect_left(self.snapshots, instant)
        return self.snapshots[at - 1] if at else None

    def get(self, snapshot_id: SnapshotId) -> HudiInstant:
        instant = self.find(str(snapshot_id))
        if instant is None:
            raise self.gone(snapshot_id)
        return instant

    def gone(self, snapshot_id: SnapshotId) -> SnapshotGone:
        return SnapshotGone(table=self.table, snapshot=str(snapshot_id), advice="read again from the newest one")

    def metadata(self, instant: HudiInstant) -> InstantMetadata:
        """Reads an instant; empty if it was archived since the timeline was listed. Raises `LakeTampered`."""
        path = os.path.join(self.folder, instant.name)
        try:
            return _load_metadata(self.files, path)
        except FileNotFoundError:
            return InstantMetadata("UNKNOWN", (), {}, "", {})
        except OSError as error:
            raise LakeUnavailable(lake="hudi", what=f"read {path}", reason=str(error)) from error
        except (ValueError, KeyError) as error:
            raise LakeTampered(
                table=self.table, snapshot=instant.id, what="its commit metadata", reason=str(error)
            ) from error


@lru_cache(_CACHED)
def _load_metadata(files: TableFiles, path: str) -> InstantMetadata:
    """Cached contents: a completed instant's file never changes, and its name is used once."""
    data = files.read_bytes(path)
    if data is None:
        raise FileNotFoundError(path)
    if data:
        files.bounds.check_avro(path, data)
    (body,) = read_container(data) if data else ({},)
    keys = dict(body.get("extraMetadata") or {})
    schema = keys.pop("schema", "")
    stats = [s for part in (body.get("partitionToWriteStats") or {}).values() for s in part]
    return InstantMetadata(
        operation=body.get("operationType") or "UNKNOWN",
        stats=stats,
        keys=keys,
        schema=schema,
        replaced=body.get("partitionToReplaceFileIds") or {},
    )


def new_instant(after: str = "") -> str:
    """Returns a time later than `after`: milliseconds in UTC, as in the table's property."""
    now = to_instant(time.time_ns() // 1_000_000)
    return now if now > after else to_instant(to_ms(after) + 1)


def to_instant(ms: int) -> str:
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y%m%d%H%M%S}{ms % 1000:03d}"


def to_ms(instant: str) -> int:
    whole = datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return int(whole.timestamp()) * 1000 + int(instant[14:17] or 0)
