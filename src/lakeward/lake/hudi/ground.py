# SPDX-License-Identifier: Apache-2.0
"""A Hudi table as loaded: its timeline, its files, and which commits are ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lakeward.errors import LakeSchemaBroken, LakeTampered
from lakeward.lake.hudi.meta.properties import DOWNGRADE, VERSION, VERSION_KEY
from lakeward.lake.hudi.meta.slices import HudiFile, SeenFile, see_files
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.hudi.meta.timeline import HudiInstant, HudiTimeline
from lakeward.model import Column, SnapshotId
from lakeward.spi import REWRITE_KEY, TABLE_ID_KEY

MARK = "newest"
"""Copy of our newest commit next to the timeline: other engines archive instants, and roll them back."""

INSTANT_KEY, COMPLETED_KEY = "lakeward.instant", "lakeward.completed"


@dataclass(frozen=True)
class HudiGround:
    """A Hudi table as loaded; commits are built on it."""

    table: HudiTable
    timeline: HudiTimeline
    properties: Mapping[str, str]
    mark: Mapping[str, str]

    @classmethod
    def load(cls, table: HudiTable) -> HudiGround:
        """Loads the table. Reads the mark first: a mark newer than the timeline would look like a table that was rolled
        back. Raises `LakeTableGone`; `LakeSchemaBroken` for an unsupported table version."""
        properties = table.load_properties()
        if (version := properties.get(VERSION_KEY)) != VERSION:
            diff = f"another engine upgraded it to table version {version}, and {VERSION} is supported; {DOWNGRADE}"
            raise LakeSchemaBroken(table=table.name, diff=diff)
        mark, broken = cls._load_mark(table)
        ground = cls(table, table.load_timeline(), properties, mark)
        if broken is not None and not ground.newest_ours():
            raise broken
        return ground

    @staticmethod
    def _load_mark(table: HudiTable) -> tuple[Mapping[str, str], LakeTampered | None]:
        """Reads the mark. A broken one is ignored while the timeline has one of our commits: the next commit writes it
        again."""
        try:
            return table.load_own(MARK) or {}, None
        except LakeTampered as error:
            return {}, error

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.table.load_columns(self.properties)

    @cached_property
    def expired(self) -> frozenset[str]:
        """Returns the requested times of expired snapshots."""
        return frozenset(self.table.expired())

    def get(self, snapshot_id: SnapshotId) -> HudiInstant:
        """Raises `SnapshotGone`."""
        if snapshot_id in self.expired:
            raise self.timeline.gone(snapshot_id)
        return self.timeline.get(snapshot_id)

    @property
    def head_id(self) -> SnapshotId | None:
        head = self.timeline.head
        return None if head is None else head.id

    @cached_property
    def seen(self) -> list[SeenFile]:
        return see_files(self.table.list_data(), self.timeline)

    def files_at(self, instant: HudiInstant | None) -> list[HudiFile]:
        return [] if instant is None else [s.file for s in self.seen if s.is_in(instant.completed)]

    def keys_of(self, instant: HudiInstant) -> Mapping[str, str]:
        """Returns the keys of our commit; empty for a foreign instant."""
        keys = self.timeline.metadata(instant).keys
        return keys if TABLE_ID_KEY in keys else {}

    def newest_ours(self, until: HudiInstant | None = None) -> Mapping[str, str]:
        """Returns the keys of our newest commit, up to an instant; empty without one."""
        for instant in reversed(self.timeline.snapshots):
            if until is not None and instant > until:
                continue
            if keys := self.keys_of(instant):
                return {**keys, INSTANT_KEY: instant.requested, COMPLETED_KEY: instant.completed}
        if self.is_marked_gone:
            return {}
        if until is not None and self.mark.get(COMPLETED_KEY, "") > until.completed:
            return {}
        return self.mark

    @property
    def is_marked_gone(self) -> bool:
        """Whether our newest commit was rolled back. A commit older than the timeline was archived."""
        if not self.mark:
            return False
        return self.timeline.completion_of(self.mark[INSTANT_KEY]) is None

    def since_ours(self) -> list[HudiInstant]:
        """Returns foreign snapshots after our newest round; none before the first."""
        newest = self.newest_round()
        if not newest:
            return []
        return [i for i in self.timeline.snapshots if i.completed > newest[COMPLETED_KEY] and not self.keys_of(i)]

    def newest_round(self) -> Mapping[str, str]:
        """As `newest_ours`, without rewrites, which change no row."""
        for instant in reversed(self.timeline.snapshots):
            keys = self.keys_of(instant)
            if keys and REWRITE_KEY not in keys:
                return {**keys, INSTANT_KEY: instant.requested, COMPLETED_KEY: instant.completed}
        return {} if self.is_marked_gone else self.mark
