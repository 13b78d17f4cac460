# SPDX-License-Identifier: Apache-2.0
"""The coordinator's own reads of lakes: the check at start, and each table's offsets, epoch and generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from lakeward.config import options as keys
from lakeward.config.lake import LakeConfig
from lakeward.config.tables import DEFAULT_LAKE, lakes_in_use
from lakeward.coordinator.lake.commits import Commits
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.record import LakeFigures, LakeSide
from lakeward.errors import (
    InvalidConfig,
    LakeBehind,
    LakeError,
    LakeMetadataGone,
    LakeUnavailable,
    LakewardError,
    PluginNotFound,
    to_wire,
)
from lakeward.model import LakeBase, OffsetMap, TableInfo, TablePath, TableState
from lakeward.protocol.tables import LakeStatus
from lakeward.spi import lake_named

_S = TableState

MOST_NAMED = 5
"""Tables that an error names before it counts them."""

READ_AT_START_S = 20.0
"""How long a start on a restored folder may be held up by its lakes: `lakeward up` waits a minute for its server."""


class Lakes:
    def __init__(self, board: Board, commits: Commits) -> None:
        self._board, self._commits = board, commits
        self.trouble: dict[str, str] = {}
        """Name -> why it does not answer."""

        self.when_met: Callable[[], None] = lambda: None
        """Called on a restored folder once every side's lake was read: it is as new as they are."""

    def check(self) -> None:
        """At start. A wrong configuration is raised; a lake that does not answer is remembered
        and asked again later.
        """
        self._check_named()
        for name in self._names():
            self._check(name)

    def _check_named(self) -> None:
        """Tables whose lake is not configured: nothing would reach it, and the log would let go of their rows. Not
        checked where `datalake.enabled` = false switches every lake off."""
        options = self._board.options
        if options.config.get(keys.DATALAKE_ENABLED) is False:
            return
        with self._board.lock:
            tables = [record.info for record in self._board.tables.values()]
        in_use: dict[str, list[TableInfo]] = {}
        for table in tables:
            for name in lakes_in_use(table.descriptor.properties):
                in_use.setdefault(name, []).append(table)
        for name, used_by in in_use.items():
            needed = options.lakes_missing.get(name) or _needed(name, options.configured.get(name), used_by)
            if needed is not None:
                raise _missing(name, [t.path for t in used_by], needed)

    def listed(self, may_see: Callable[[TablePath], bool] = lambda _path: True) -> list[LakeStatus]:
        """Every lake that is configured, the one of tables that name none first; of its tables those that the caller
        may see."""
        options = self._board.options
        with self._board.lock:
            sides = [s for s in self._board.sides() if s.options.enabled and may_see(s.info.path)]
        counts = Counter(s.options.lake for s in sides)
        return [
            LakeStatus(
                name=name,
                format=lake.format,
                is_default=first,
                tables=counts[name],
                trouble=self.trouble.get(name, ""),
                options=options.addresses[name].options if name in options.addresses else {},
            )
            for name, lake, first in ((n, lake, not i) for i, (n, lake) in enumerate(options.configured.items()))
        ]

    def ask(self, name: str) -> None:
        """Asks the lake now; what it says is kept in `trouble`."""
        try:
            self._check(name)
        except (InvalidConfig, PluginNotFound) as error:
            self.trouble[name] = str(error)

    def look(self) -> None:
        """From time to time: whether every lake still answers. Nothing is raised; people see it on the dashboard."""
        for name in self._names():
            self.ask(name)

    def shown(self) -> dict[str, str]:
        """Name -> why it does not answer, empty where it does; the lake of `datalake.format` under its format."""
        known = self._board.options.configured
        with self._board.lock:
            names = {s.options.lake for s in self._board.sides() if s.options.enabled} | set(known)
        shown = {known[n].format if n == DEFAULT_LAKE and n in known else n: self.trouble.get(n, "") for n in names}
        return dict(sorted(shown.items()))

    def _names(self) -> list[str]:
        with self._board.lock:
            names = {s.options.lake for s in self._board.sides() if s.options.enabled}
        return sorted(names | {n for n, lake in self._board.options.configured.items() if lake.enabled})

    def _check(self, name: str) -> None:
        try:
            with lake_named(name):
                self._board.lakes(name).catalog().check()
            self.trouble.pop(name, None)
        except (InvalidConfig, PluginNotFound):
            raise
        except LakewardError as error:
            self.trouble[name] = str(error)

    def pause_restored(self) -> None:
        """A restored folder may be behind its lakes: no writes to a table before each of them has said where it
        stands."""
        for side in self.unseen():
            self._hold_writes(side)

    def read_restored(self) -> None:
        """Before a restored folder is served: lakes that answer are read, so that writes wait for the others alone."""
        until = self._board.clock.monotonic() + READ_AT_START_S
        for side in self.unseen():
            if side.options.lake not in self.trouble and self._board.clock.monotonic() < until:
                self.read(side)
        self._tell_met()

    def _hold_writes(self, side: LakeSide) -> None:
        lake, error = side.name.lake, (side.lake_error or {}).get("message") or self.trouble.get(side.options.lake)
        reason = f"the data folder was restored from a backup, and lake {lake} has not said yet how far it is"
        self._board.hot.pause_writes(side.info, f"{reason} ({error})" if error else reason)

    def _tell_met(self) -> None:
        if self._board.options.restored and not self.unseen():
            self.when_met()

    def unseen(self) -> list[LakeSide]:
        """Sides whose lake was not read since start: overdue ones first."""
        with self._board.lock:
            rows = [s for s in self._board.sides() if not s.lake_seen and s.options.enabled]
        return sorted(rows, key=lambda r: r.last_tiered_at_ms or 0)

    def read_unseen(self) -> int:
        """Reads the lake of every side that was not read since start; returns how many answered."""
        return sum(self.read(side) for side in self.unseen())

    def unconfirmed(self) -> list[LakeSide]:
        """Sides with reported offsets that retention may not use yet."""
        now, every = self._board.clock.monotonic(), self._board.options.confirm_s
        with self._board.lock:
            rows = [s for s in self._board.sides() if s.options.enabled and s.lake_seen and s.confirmed != s.committed]
            return [s for s in rows if s.confirmed_at is None or now - s.confirmed_at >= every]

    def read(self, side: LakeSide) -> bool:
        """Reads one table's lake side and takes it over; false when it did not answer or does not fit (kept in the
        side).
        """
        storage = self._board.lake_of(side)
        if storage is None:
            return False
        with self._board.lock:
            before, generation = side.committed, side.generation
        try:
            with lake_named(side.name.lake):
                base = storage.open_reader(side.lake_table).load_base()
            self._take(side, base)
            if base.generation == generation:
                check_not_behind(side.label, before, base)
        except LakewardError as error:
            self._note(side, error)
            return False
        self._tell_met()
        return True

    def refresh_figures(self, side: LakeSide) -> None:
        storage = self._board.lake_of(side)
        if storage is None:
            return
        try:
            totals = storage.open_reader(side.lake_table).totals()
        except LakewardError:
            return
        with self._board.change():
            side.lake = LakeFigures(
                rows=totals.rows if totals.is_exact else side.lake.rows,
                bytes=totals.bytes,
                files=totals.data_files,
                delete_files=totals.delete_files,
                snapshots=totals.snapshots,
            )
            self._board.touch(side)

    def _take(self, side: LakeSide, base: LakeBase) -> None:
        ends = {b: v.end for b, v in self._board.hot.bounds(side.info).items()}
        lost = [b for b, offset in base.offsets.items() if offset > ends.get(b, 0)] if side.lake_table.is_pk else []
        gaps = self._board.hot.guard_offsets(side.info, base.offsets)
        with self._board.change():
            if not self._board.is_current(side):
                return
            self._commits.adopt_base(side, base)
            if gaps:
                self._commits.record_gaps(side, dict(gaps), "restored")
            side.lake_seen, side.lake_error = True, None
            if all(s.lake_seen for s in side.table.enabled):
                self._board.hot.pause_writes(side.info, None)
            side.confirmed_at = self._board.clock.monotonic()
            side.confirmed = base.offsets
            self._board.look(side)
            if lost:
                held, end = base.offsets[lost[0]], ends.get(lost[0], 0)
                why = f"bucket {lost[0]}: the lake holds offset {held}, the log ended at {end}"
                self._break(side, why, "load what is newer in the lake")
            self._check_reach(side)

    def _check_reach(self, side: LakeSide) -> None:
        """The lake was off for longer than the log is kept: rows between the two are in
        neither. An operator chooses.
        """
        starts = {b: v.start for b, v in self._board.hot.bounds(side.info).items()}
        short = [b for b, offset in side.committed.items() if starts.get(b, 0) > offset]
        if short:
            first = short[0]
            why = f"bucket {first}: the lake ends at {side.committed[first]} and the log begins at {starts[first]}"
            self._break(side, why, "resync it from a KV snapshot" if side.lake_table.is_pk else "accept the gap")

    def _break(self, side: LakeSide, why: str, choice: str) -> None:
        """Pauses the table until an operator chooses how lake and log meet again."""
        if side.resync is not None or side.broken is not None or side.state is _S.DISABLED:
            return
        side.broken = f"{why}; {choice} with `lakeward table resync {side.argument}`"
        if side.state is not _S.PAUSED:
            self._board.enter(side, _S.PAUSED, side.broken)
        self._board.touch(side)

    def _note(self, side: LakeSide, error: LakewardError) -> None:
        with self._board.change():
            side.lake_error = to_wire(error)
            if self._board.options.restored and not side.lake_seen:
                self._hold_writes(side)
            elif isinstance(error, LakeMetadataGone) and not side.lake_seen:
                # A restored catalog: the lake may hold offsets that this log would give to other rows.
                self._board.hot.pause_writes(side.info, str(error))
            if isinstance(error, LakeError) and not isinstance(error, LakeUnavailable):
                side.reason = str(error)


def _needed(name: str, lake: LakeConfig | None, tables: Sequence[TableInfo]) -> str | None:
    """The lines that lakeward.toml lacks for these tables of a lake."""
    if name != DEFAULT_LAKE:
        return f"[lakes.{name}]" if lake is None else None
    formats = {table.descriptor.properties[keys.TABLE_DATALAKE_FORMAT.key] for table in tables}
    others = formats - {None if lake is None else lake.format}
    return next((f'{keys.DATALAKE_FORMAT.key} = "{name}"' for name in sorted(others)), None)


def _missing(name: str, paths: Sequence[TablePath], lines: str) -> InvalidConfig:
    shown = ", ".join(map(str, sorted(paths)[:MOST_NAMED]))
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    them = f"tables {shown}{more} are" if len(paths) > 1 else f"table {shown} is"
    short = "" if name == DEFAULT_LAKE else f", unless you take it from {keys.TABLE_DATALAKE_LAKES.key} first"
    return InvalidConfig(
        where=f"lakes.{name}",
        reason=f"{them} in lake {name}, which is not configured as it was; lakeward.toml needs: {lines}{short}. "
        f"{keys.DATALAKE_ENABLED.key} = false starts without any lake: nothing is tiered then, and the log is kept",
    )


def check_not_behind(name: str, committed: OffsetMap, base: LakeBase) -> None:
    """A coordinator ahead of the lake is an error, never "never tiered". `committed` was noted before the lake was
    read: the lake has each commit before its report."""
    for bucket in committed.regressions(base.offsets):
        raise LakeBehind(
            table=name, bucket=str(bucket), lake_offset=base.offsets.get(bucket, 0), committed=committed[bucket]
        )
