# SPDX-License-Identifier: Apache-2.0
"""A Hudi table as it was loaded: its timeline, its files, and which commits are ours."""

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
"""Our newest commit, kept beside the timeline: others archive instants, and take them back."""

INSTANT_KEY, COMPLETED_KEY = "lakeward.instant", "lakeward.completed"


@dataclass(frozen=True)
class HudiGround:
    """The table as it was found: what a commit is built on."""

    table: HudiTable
    timeline: HudiTimeline
    properties: Mapping[str, str]
    mark: Mapping[str, str]

    @classmethod
    def load(cls, table: HudiTable) -> HudiGround:
        """The mark first: one that is newer than the timeline would look like a table that was moved back. Raises
        `LakeTableGone`; `LakeSchemaBroken` for a table version whose files nobody here knows how to read."""
        properties = table.load_properties()
        if (version := properties.get(VERSION_KEY)) != VERSION:
            diff = f"another engine made it table version {version}, and {VERSION} is known here; {DOWNGRADE}"
            raise LakeSchemaBroken(table=table.name, diff=diff)
        mark, broken = cls._load_mark(table)
        ground = cls(table, table.load_timeline(), properties, mark)
        if broken is not None and not ground.newest_ours():
            raise broken
        return ground

    @staticmethod
    def _load_mark(table: HudiTable) -> tuple[Mapping[str, str], LakeTampered | None]:
        """A broken one is as good as none while the timeline has a commit of ours: the next commit writes it again."""
        try:
            return table.load_own(MARK) or {}, None
        except LakeTampered as error:
            return {}, error

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.table.load_columns(self.properties)

    @cached_property
    def expired(self) -> frozenset[str]:
        """Requested times of snapshots that were let go."""
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
        """Ours; empty for an instant of others."""
        keys = self.timeline.metadata(instant).keys
        return keys if TABLE_ID_KEY in keys else {}

    def newest_ours(self, until: HudiInstant | None = None) -> Mapping[str, str]:
        """The keys of our newest commit, up to an instant; empty without one."""
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
        """Was our newest commit taken back? One that is older than the timeline was archived."""
        if not self.mark:
            return False
        return self.timeline.completion_of(self.mark[INSTANT_KEY]) is None

    def since_ours(self) -> list[HudiInstant]:
        """Snapshots of others after our newest round; none before the first."""
        newest = self.newest_round()
        if not newest:
            return []
        return [i for i in self.timeline.snapshots if i.completed > newest[COMPLETED_KEY] and not self.keys_of(i)]

    def newest_round(self) -> Mapping[str, str]:
        """As `newest_ours`, leaving out rewrites: they change no row."""
        for instant in reversed(self.timeline.snapshots):
            keys = self.keys_of(instant)
            if keys and REWRITE_KEY not in keys:
                return {**keys, INSTANT_KEY: instant.requested, COMPLETED_KEY: instant.completed}
        return {} if self.is_marked_gone else self.mark
