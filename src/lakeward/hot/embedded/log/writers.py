# SPDX-License-Identifier: Apache-2.0
"""Which put of which writer a bucket has taken: what makes a retried put land once. One table per bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakeward.errors import InvalidRequest, OutOfSequence, WriterForgotten
from lakeward.protocol.flight import MAX_UNDER_WAY

REMEMBERED = MAX_UNDER_WAY
"""Puts per writer whose offsets are kept: any that a client may send again. (Fluss and Kafka: five.)"""

KEPT = 4096
"""Writers of a bucket that are remembered for as long as `server.writer-id.expiration-time` says: 1 MB."""

BUSY_WRITER_MS = 600_000
"""Every writer is remembered this long: a put is sent again for 2 minutes (`client.writer.retry-timeout`). One that is
sent for longer says so, and is refused when its writer may be among those that are forgotten."""

_SLACK_MS = 60_000
"""Allowance for the travel time of a put and the difference between clocks."""

_FORGOTTEN = "forgotten"
_NEVER = -(1 << 62)


@dataclass(frozen=True, slots=True)
class _Put:
    sequence: int
    start: int
    stop: int
    timestamp_ms: int


class WriterTable:
    """Not thread-safe: the bucket's append lock guards it."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        self._puts: dict[int, tuple[_Put, ...]] = {}
        self._forgotten_ms = _NEVER

    def __len__(self) -> int:
        return len(self._puts)

    def find(self, writer: WriterSequence | None, now_ms: int = 0) -> Appended | None:
        """The first answer to a put that was here before; None when it is the one that is due.

        Raises `OutOfSequence` for a gap, and for one so old that its offsets are not remembered; `WriterForgotten` for
        a first one of old that may have been here."""
        if writer is None:
            return None
        puts = self._puts.get(writer.writer_id, ())
        due = _after(puts[-1].sequence) if puts else 0
        if writer.sequence == due:
            if not puts and writer.age_ms and now_ms - writer.age_ms - _SLACK_MS <= self._forgotten_ms:
                raise WriterForgotten(writer=str(writer.writer_id), bucket=self._bucket, age_s=writer.age_ms // 1000)
            return None
        for put in puts:
            if put.sequence == writer.sequence:
                return Appended(put.start, put.stop, put.timestamp_ms, duplicate=True)
        raise OutOfSequence(writer=str(writer.writer_id), bucket=self._bucket, got=writer.sequence, expected=due)

    def record(self, writer_id: int, sequence: int, appended: Appended) -> None:
        """Takes what the log has as a fact: also called while headers are read again at start."""
        if writer_id < 0:
            return
        put = _Put(sequence, appended.start, appended.stop, appended.timestamp_ms)
        self._puts[writer_id] = (*self._puts.get(writer_id, ())[1 - REMEMBERED :], put)

    def forget_before(self, at_ms: int) -> None:
        """Removes writers that have been idle since then; one that returns gets an error that asks for a new writer."""
        self._forget({w for w, puts in self._puts.items() if puts[-1].timestamp_ms < at_ms})

    def forget_surplus(self, now_ms: int) -> None:
        """Removes the writers beyond `KEPT` that have been idle longest: tasks that wrote once and ended."""
        surplus = len(self._puts) - KEPT
        if surplus > 0:
            silent = [w for w, puts in self._puts.items() if puts[-1].timestamp_ms < now_ms - BUSY_WRITER_MS]
            self._forget(set(sorted(silent, key=lambda w: self._puts[w][-1].timestamp_ms)[:surplus]))

    def _forget(self, gone: set[int]) -> None:
        if gone:
            self._forgotten_ms = max(self._forgotten_ms, *(self._puts[w][-1].timestamp_ms for w in gone))
            self._puts = {w: puts for w, puts in self._puts.items() if w not in gone}

    def to_json(self) -> dict[str, Any]:
        body = {str(w): [[p.sequence, p.start, p.stop, p.timestamp_ms] for p in puts] for w, puts in self._puts.items()}
        return body if self._forgotten_ms == _NEVER else {**body, _FORGOTTEN: self._forgotten_ms}

    def load(self, body: Mapping[str, Any]) -> None:
        self._forgotten_ms = int(body.get(_FORGOTTEN, _NEVER))
        self._puts = {int(w): tuple(_Put(*map(int, p)) for p in puts) for w, puts in body.items() if w != _FORGOTTEN}


def _after(sequence: int) -> int:
    return 0 if sequence == MAX_SEQUENCE else sequence + 1


MAX_WRITER_ID = 2**63 - 1
MAX_SEQUENCE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class WriterSequence:
    """A writer and the number of its put to one bucket: from 0, one more each time, after 2^31 - 1 from 0 again.

    `age_ms`: how long ago it was first sent; 0: it is sent for the first time."""

    writer_id: int
    sequence: int
    age_ms: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.writer_id <= MAX_WRITER_ID or not 0 <= self.sequence <= MAX_SEQUENCE or self.age_ms < 0:
            reason = "a writer id is 0 to 2^63 - 1, a sequence 0 to 2^31 - 1, an age no less than 0"
            raise InvalidRequest(what=f"writer {self.writer_id}, sequence {self.sequence}", reason=reason)


@dataclass(frozen=True, slots=True)
class Appended:
    """The offsets `[start, stop)` of a put; a put without records takes one offset that names no row.

    `duplicate`: the put was here before, these are its first offsets and nothing was stored again."""

    start: int
    stop: int
    timestamp_ms: int = 0
    duplicate: bool = False
