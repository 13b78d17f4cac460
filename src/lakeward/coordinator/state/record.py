# SPDX-License-Identifier: Apache-2.0
"""Everything the coordinator knows of one table: what it is, and how each of its sides stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from lakeward.config.tables import lakes_in_use
from lakeward.coordinator.options import SideOptions
from lakeward.coordinator.state.work import Lease, Work
from lakeward.model import (
    DEFAULT_SIDE,
    TIER,
    Bucket,
    Content,
    OffsetMap,
    SideId,
    SideName,
    TableId,
    TableInfo,
    TablePath,
    TableState,
    WorkKind,
    side_table,
)
from lakeward.protocol.operate import ResyncChoice
from lakeward.spi import Waiting


@dataclass
class LakeFigures:
    """The lake table's totals as last reported."""

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    delete_files: int | None = None
    snapshots: int | None = None

    @property
    def all_files(self) -> int:
        """Number of files that a reader of the whole table opens."""
        return (self.files or 0) + (self.delete_files or 0)


@dataclass(frozen=True, kw_only=True)
class LagDrop:
    """The lag of a side just before a round's commit and just after it."""

    path: TablePath
    side: SideName
    at_ms: int
    before_ms: int
    after_ms: int


@dataclass
class TableRecord:
    info: TableInfo
    sides: dict[SideName, LakeSide] = field(default_factory=dict)

    @property
    def table_id(self) -> TableId:
        return self.info.table_id

    def add_side(self, name: SideName, options: SideOptions) -> LakeSide:
        self.sides[name] = LakeSide(self, options, name)
        return self.sides[name]

    @property
    def enabled(self) -> list[LakeSide]:
        return [side for side in self.sides.values() if side.options.enabled]

    @property
    def is_cut_off(self) -> bool:
        """Its rows are meant for a lake and the server has none on: they wait in the log."""
        return not self.enabled and bool(lakes_in_use(self.info.descriptor.properties))

    @property
    def with_state(self) -> list[LakeSide]:
        """Those that hold the table's rows, not its changes."""
        return [side for side in self.sides.values() if side.name.content is Content.STATE]

    @property
    def first(self) -> LakeSide:
        """The side that counts where none is named: the first one with the table's state."""
        return self.with_state[0]


@dataclass(eq=False)
class LakeSide:
    """One lake table that is kept up to date from the table's log. `committed` is what the ledger says, `confirmed`
    what the coordinator saw in the lake itself."""

    table: TableRecord
    options: SideOptions
    name: SideName = DEFAULT_SIDE
    state: TableState | None = None
    reason: str | None = None
    works: dict[WorkKind, Work] = field(default_factory=lambda: {TIER: Work(TIER)})
    committed: OffsetMap = field(default_factory=OffsetMap)
    confirmed: OffsetMap = field(default_factory=OffsetMap)
    token: str | None = None
    """The newest round that the lake is known to have."""

    generation: int = 0
    resync: ResyncChoice | None = None
    """The resync that an operator requested; done once every bucket was compared."""

    to_compare: frozenset[Bucket] | None = None
    """The buckets that are left of it; None: all."""

    resync_offsets: OffsetMap = field(default_factory=OffsetMap)
    """The lake's committed offsets when the resync was requested."""

    broken: str | None = None
    """Why lake and log do not meet any more; the side is paused until an operator chooses."""

    missing: int = 0
    """Offsets of a log table whose rows were gone from the log before this side had them."""

    misses: int = 0
    pending_since_ms: int | None = None
    """For people: what counts is monotonic."""

    last_tiered_at_ms: int | None = None
    lake: LakeFigures = field(default_factory=LakeFigures)

    # Not stored: found out again after a restart.
    waiting: Waiting = field(default_factory=Waiting)
    waiting_seen: float = 0.0
    """Monotonic time at which this oldest row was first seen to wait: its own time may lie in the future, once somebody
    has set the wall clock back."""

    pending_since: float | None = None
    lake_seen: bool = False
    lake_error: dict[str, Any] | None = None
    confirmed_at: float | None = None
    asked: OffsetMap | None = None
    """Somebody waits until the lake has these: start as soon as there is a slot."""

    held: int = 0
    """Orphan removal keeps the side unleased while this is above 0."""

    counted_oldest_ms: int | None = None
    """The oldest row whose miss was counted, so that each is counted once."""

    def __post_init__(self) -> None:
        self.id = SideId(self.table.table_id, self.name)

    @property
    def info(self) -> TableInfo:
        return self.table.info

    @property
    def lake_table(self) -> TableInfo:
        """The table as this side's lake has it."""
        return side_table(self.table.info, self.name)

    @property
    def table_id(self) -> TableId:
        return self.table.info.table_id

    @property
    def label(self) -> str:
        """For people: the table, and the side where it is not the only one."""
        path = str(self.table.info.path)
        return path if len(self.table.sides) <= 1 else f"{path} ({self.name})"

    @property
    def argument(self) -> str:
        """For commands that people type."""
        path = str(self.table.info.path)
        return path if len(self.table.sides) <= 1 else f"{path} --lake {self.name}"

    def advised(self, words: str) -> str:
        """Adds this side to the commands in a message about the lake table: its author knows only one lake."""
        names = "|".join(re.escape(str(path)) for path in (self.lake_table.path, self.info.path))
        commands = rf"(lakeward table (?:resync|restore-lake|rebuild-lake|reconcile-schema)) (?:{names})(?=`)"
        return re.sub(commands, rf"\1 {self.argument}", words)

    @property
    def tier(self) -> Work:
        return self.works[TIER]

    def work(self, kind: WorkKind) -> Work:
        return self.works.setdefault(kind, Work(kind))

    def leases(self) -> list[tuple[Work, Lease]]:
        """Leases of work on this side."""
        return [(work, work.lease) for work in list(self.works.values()) if work.lease is not None]

    def copy(self) -> LakeSide:
        """Changes to it leave this one alone."""
        return replace(self, works={kind: replace(work) for kind, work in self.works.items()})

    def see(self, waiting: Waiting, now: float) -> None:
        """Takes over what waits now."""
        if waiting.oldest_at_ms != self.waiting.oldest_at_ms:
            self.waiting_seen = now
        self.waiting = waiting

    def lag_ms(self, now_ms: int, now: float) -> int | None:
        """How long the oldest waiting row has waited; None when nothing waits. By its own time, and at least since it
        was seen.
        """
        if self.waiting.oldest_at_ms is None:
            return None
        return max(now_ms - self.waiting.oldest_at_ms, int(1_000 * (now - self.waiting_seen)), 0)

    def covers(self, offsets: OffsetMap) -> bool:
        return all(self.committed.get(b, 0) >= o for b, o in offsets.items())

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "works": {kind: work.to_json() for kind, work in self.works.items()},
            "resync": self.resync,
            "to_compare": None if self.to_compare is None else sorted(map(str, self.to_compare)),
            "resync_offsets": self.resync_offsets.to_json(),
            "lake": vars(self.lake),
        }

    def load_json(self, body: dict[str, Any]) -> None:
        """Takes over what was stored; fields that an older version did not store keep their default."""
        for name in _PLAIN:
            if body.get(name) is not None:
                setattr(self, name, body[name])
        for kind, work in (body.get("works") or {}).items():
            self.works[WorkKind(kind)] = Work.from_json(WorkKind(kind), work)
        self.resync = ResyncChoice(body["resync"]) if body.get("resync") else None
        to_compare = body.get("to_compare")
        self.to_compare = None if to_compare is None else frozenset(map(Bucket.parse, to_compare))
        if body.get("resync_offsets"):
            self.resync_offsets = OffsetMap.from_json(body["resync_offsets"])
        self.lake = LakeFigures(**body.get("lake") or {})


_PLAIN = ("reason", "token", "generation", "broken", "missing", "misses", "pending_since_ms", "last_tiered_at_ms")
