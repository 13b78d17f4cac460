# SPDX-License-Identifier: Apache-2.0
"""Operators' actions on one side of a table: pause, resume, ask for its data now, resync."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lakeward.coordinator.lake.newerrows import NewerRows
from lakeward.coordinator.schedule.kind import Kind
from lakeward.coordinator.state.board import STANDS, Board
from lakeward.coordinator.state.record import LakeSide
from lakeward.errors import InvalidRequest, TableBusy, TableNotFound, TimedOut, from_wire
from lakeward.model import OffsetMap, SideId, SideName, TablePath, TableState
from lakeward.protocol.operate import ResyncChoice, TierNowAnswer

_S = TableState

POLL_S = 0.05
"""How often a call that waits for a round looks again."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A tier-now call under way: it is done when the lake has these offsets."""

    side: SideId
    path: TablePath
    offsets: OffsetMap
    since: float
    epoch: int
    failures: int = 0
    """Rounds of the side that had failed before."""


class Operations:
    def __init__(self, board: Board, kinds: Collection[Kind]) -> None:
        self._board, self._kinds, self._newer = board, kinds, NewerRows(board)
        self.asks = 0
        """Rounds that were asked for so far: who holds an idle job's answer back sees it grow."""

    def pause(self, path: TablePath, name: SideName | None = None) -> None:
        """Stops a running round at its next heartbeat; it can no longer commit. Safe to repeat."""
        with self._board.change():
            for side in self._named(path, name):
                if side.state is not _S.PAUSED:
                    self._board.enter(side, _S.PAUSED, "paused by call")

    def _named(self, path: TablePath, name: SideName | None) -> list[LakeSide]:
        """The side that was named, or all."""
        return list(self._board.find_table(path).sides.values()) if name is None else [self._board.find(path, name)]

    def resume(self, path: TablePath, name: SideName | None = None) -> None:
        """From Paused or Quarantined; resets the count of failures. Safe to repeat."""
        with self._board.change():
            sides = self._named(path, name)
            for side in sides:
                if side.broken is None and side.state is not _S.DISABLED:
                    self._go_on(side)
            for side in sides:
                if side.broken is not None:
                    raise TableBusy(table=side.label, reason=side.broken)
                if side.state is _S.DISABLED:
                    raise TableBusy(
                        table=side.label, reason="the lake is switched off for it; set table.datalake.enabled to true"
                    )

    def _go_on(self, side: LakeSide) -> None:
        side.tier.forgive()
        if side.state is _S.FAILED:
            self._board.retry_after(side, side.tier, 0)
        elif side.state in (_S.PAUSED, _S.QUARANTINED):
            self._board.enter(side, _S.SCHEDULED)
        self._board.touch(side)

    def maintain_now(self, path: TablePath, name: SideName | None = None) -> None:
        """Its upkeep takes the first slot that is free, also where the table has none by itself, or waits because the
        last one failed. Returns at once. Raises `TableBusy` when none can run."""
        with self._board.change():
            side = self._board.find(path, name)
            _check_goes(side)
            reasons = {kind.name: kind.why_not(side) for kind in self._kinds if kind.is_upkeep}
            possible = [name for name, reason in reasons.items() if reason is None]
            if not possible:
                raise TableBusy(table=side.label, reason="; ".join(r for r in reasons.values() if r))
            for kind in possible:
                work = side.work(kind)
                work.asked, work.retry_at, work.retry_at_ms = True, None, None
            self._board.touch(side)

    # ---- tier now ----
    def ask_now(self, path: TablePath, names: Sequence[SideName | None] = (None,)) -> list[Asked]:
        """Notes what must reach the lake: of all these sides at once, so that one answer to a job has them all and they
        read the log together. Raises `TableBusy` when no round of one of them can run, and asks for none then."""
        with self._board.lock:
            sides = [self._board.find(path, name) for name in names]
        offsets = OffsetMap({b: v.end for b, v in self._board.hot.bounds(sides[0].info, sync=True).items()})
        since = self._board.clock.monotonic()
        with self._board.change():
            for side in sides:
                _check_goes(side)
            asked = [
                Asked(side=s.id, path=path, offsets=offsets, since=since, epoch=s.tier.epoch, failures=s.tier.failures)
                for s in sides
            ]
            for side in sides:
                self.ask(side, offsets)
            return asked

    def ask(self, side: LakeSide, offsets: OffsetMap) -> None:
        """Under `change()`: rounds start as soon as there is a slot, until the lake has these."""
        if side.covers(offsets):
            return
        side.asked = offsets if side.asked is None else side.asked.raised(offsets)
        self._board.look(side)
        if side.state is _S.FAILED:
            self._board.retry_after(side, side.tier, 0)
            self._board.touch(side)
        self.asks += 1

    def check_asked(self, asked: Asked) -> TierNowAnswer | None:
        """The answer once the lake has it, and a resync that was asked for is done; None before. Raises `TableBusy` or
        `TableNotFound` when it never will, and when its rounds fail."""
        with self._board.lock:
            side = self._board.side(asked.side)
            if side is None:
                raise TableNotFound(table=str(asked.path))
            if side.covers(asked.offsets) and side.resync is None:
                took = int(1_000 * (self._board.clock.monotonic() - asked.since))
                return TierNowAnswer(
                    path=asked.path, committed=side.committed, rounds=side.tier.epoch - asked.epoch, took_ms=took
                )
            _check_goes(side)
            _check_failed(side, asked)
            return None

    def check_limit(self, asked: Asked, limit_s: float) -> None:
        with self._board.lock:
            if self._board.clock.monotonic() - asked.since < limit_s:
                return
            side = self._board.side(asked.side)
            words = "dropped" if side is None else self._words(side)
        raise TimedOut(what=f"tiering {asked.path} now", limit_s=limit_s, state=words)

    def limit(self, limit_s: float | None) -> float:
        longest = self._board.options.tier_now_limit_s
        return longest if limit_s is None else min(limit_s, longest)

    def _words(self, side: LakeSide) -> str:
        lease = side.tier.lease
        job = f" by job {lease.job}" if lease is not None else ""
        why = f" ({side.reason})" if side.reason else ""
        return f"the table is {side.state}{job}{why}, {side.waiting.words}"

    # ---- resync ----
    def resync(
        self, path: TablePath, choice: ResyncChoice, name: SideName | None = None, *, discard_newer: bool = False
    ) -> None:
        """The next round makes lake and log meet again and begins a new generation of the ledger. What is newer in the
        lake, as after a restore of the hot store's folder, is loaded first. The lake is read outside the lock: what it
        holds now is where the new generation begins. Safe to repeat until that round has committed."""
        with self._board.lock:
            side = self._board.find(path, name)
            storage = self._board.lake_of(side)
        if storage is None:
            raise InvalidRequest(what=f"resync of {path}", reason="the lake is not enabled for this table")
        if choice is ResyncChoice.GAP and side.lake_table.is_pk:
            raise InvalidRequest(what=f"resync of {path}", reason="a PK table cannot have a gap; choose resync")
        self._newer.load(side, discard=discard_newer)
        base = storage.open_reader(side.lake_table).load_base_as_is()
        with self._board.change():
            if not self._board.is_current(side):
                raise TableNotFound(table=str(path))
            is_second = side.resync is not None
            side.resync, side.to_compare, side.resync_offsets, side.broken = choice, None, base.offsets, None
            side.lake_seen, side.lake_error = True, None
            # A round of the earlier resync may still land. It compared the lake as it was, and does not serve this one.
            side.generation = max(side.generation, base.generation) + is_second
            side.tier.forgive()
            if side.state in (_S.PAUSED, _S.QUARANTINED):
                self._board.enter(side, _S.SCHEDULED)
            elif side.state is _S.FAILED:
                self._board.retry_after(side, side.tier, 0)
            elif side.state is _S.TIERING:
                # The round in work was planned without the resync.
                self._board.enter(side, _S.PENDING, "a resync was asked for")
            self._board.touch(side)


def _check_failed(side: LakeSide, asked: Asked) -> None:
    """Raises `TableBusy` once a round failed since the call, with what another attempt would not mend, or two did."""
    failed = side.tier.failures - asked.failures
    if failed <= 0 or side.tier.error is None:
        return
    if failed > 1 or not from_wire(side.tier.error).retryable:
        advice = f"`lakeward rounds {side.info.path}` shows its rounds, which go on by themselves"
        raise TableBusy(table=side.label, reason=f"its round failed: {side.tier.error.get('message')}; {advice}")


def _check_goes(side: LakeSide) -> None:
    """Raises `TableBusy` where nothing is done for a side until somebody says so."""
    if side.state in STANDS:
        is_off = side.state is _S.DISABLED
        advice = "set table.datalake.enabled to true" if is_off else f"`lakeward resume {side.argument}` ends that"
        raise TableBusy(table=side.label, reason=f"it is {side.state}: {side.reason or 'by call'}; {advice}")
