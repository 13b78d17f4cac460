# SPDX-License-Identifier: Apache-2.0
"""Moments: where the logs of all tables ended at one time. Loads that come within `live.hold` of each other share one,
so that a query over several tables sees them as they were together."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lakeward.errors import InvalidRequest, ReadTooFarAhead
from lakeward.model import Clock, CutEnds, TableId, TableInfo
from lakeward.protocol.readplan import WriteToken

_WAITS_S = (0.05, 0.1, 0.2, 0.65)
"""Each look freezes log ends, so that looks become rarer."""

Freeze = Callable[[Sequence[TableInfo] | None], Mapping[TableId, CutEnds]]
"""Log ends of these tables at one time, or of all."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Every row acknowledged before `at_ms` is below the ends, and none that was written `window_ms` after it."""

    at_ms: int
    taken_at: float
    ends: Mapping[TableId, CutEnds]
    window_ms: int = 0

    def covers(self, token: WriteToken) -> bool:
        ends = self.ends.get(token.table_id)
        return ends is not None and ends.covers(token.offsets)


class Moments:
    """Thread-safe."""

    def __init__(self, freeze: Freeze, clock: Clock, hold_s: float, *, is_exact: bool = True) -> None:
        """`is_exact`: whether `freeze` takes all ends at one instant."""
        self._freeze, self._clock, self._hold_s, self._is_exact = freeze, clock, hold_s, is_exact
        self._lock = threading.Lock()
        self._last: Moment | None = None

    def take(self, table: TableInfo, at_least: WriteToken | None = None) -> Moment:
        """The moment of the last load, or a new one. Waits a second for a token that the log has not reached: Fluss
        acknowledges a write moments before it is readable. Raises `ReadTooFarAhead` then."""
        for wait_s in (*_WAITS_S, None):
            moment = self._take(table, at_least)
            if at_least is None or moment.covers(at_least):
                return moment
            if wait_s is None or at_least.table_id not in moment.ends:
                break
            time.sleep(wait_s)
        assert at_least is not None, "without a token the first moment is returned"
        raise _too_far(table, moment, at_least)

    def _take(self, table: TableInfo, at_least: WriteToken | None) -> Moment:
        with self._lock:
            moment = self._last
            if moment is None or not self._serves(moment, table, at_least):
                moment = self._last = self._new(None if self._hold_s > 0 else [table])
            return moment

    def _serves(self, moment: Moment, table: TableInfo, at_least: WriteToken | None) -> bool:
        is_young = self._clock.monotonic() - moment.taken_at < self._hold_s
        return is_young and table.table_id in moment.ends and (at_least is None or moment.covers(at_least))

    def _new(self, tables: Sequence[TableInfo] | None) -> Moment:
        at_ms, taken_at = self._clock.now_ms(), self._clock.monotonic()
        ends = self._freeze(tables)
        window_ms = 0 if self._is_exact else math.ceil((self._clock.monotonic() - taken_at) * 1_000)
        return Moment(at_ms=at_ms, taken_at=taken_at, ends=ends, window_ms=window_ms)


def _too_far(table: TableInfo, moment: Moment, token: WriteToken) -> Exception:
    ends = moment.ends.get(token.table_id)
    if ends is None:
        return InvalidRequest(what="write token", reason=f"it is of table id {token.table_id}, which is not here")
    bucket, expected = next((b, o) for b, o in token.offsets.items() if ends.ends.get(b, 0) < o)
    return ReadTooFarAhead(table=str(table.path), bucket=str(bucket), wanted=expected, end=ends.ends.get(bucket, 0))
