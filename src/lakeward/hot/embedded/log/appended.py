# SPDX-License-Identifier: Apache-2.0
"""The writer and sequence that a put carries, and the offsets that it gets in return."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.errors import InvalidRequest

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
