# SPDX-License-Identifier: Apache-2.0
"""The strings on a running round: stop it, make it finish early, see how far it is. Shared by its thread and the
heartbeat.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from lakeward.errors import LakewardError
from lakeward.protocol.heartbeat import MOST_WORDS, Progress
from lakeward.tiering.work.stop import ABORT, FORCE


class RoundControl:
    """Safe to use from several threads. `flag`: the file that tells executors on this machine; None on a cluster."""

    def __init__(self, flag: Path | None = None) -> None:
        self._flag = flag
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._stopped_by: LakewardError | None = None
        self._given_back = False
        self._is_leaving = False
        self.forced = False
        self.told_next_ms: int | None = None
        self.progress = Progress()

    @property
    def flag(self) -> str | None:
        return None if self._flag is None else str(self._flag)

    @property
    def stopped_by(self) -> LakewardError | None:
        return self._stopped_by

    @property
    def is_given_back(self) -> bool:
        return self._given_back

    def force(self) -> None:
        """Splits stop at a batch boundary; what they have is committed."""
        with self._lock:
            if self._stopped_by is None:
                self._raise_flag(FORCE)
            self.forced = True  # last: who sees it finds the flag raised

    def stop(self, error: LakewardError, *, given_back: bool = True) -> None:
        """Nothing more is committed. The first reason stands."""
        with self._lock:
            if self._stopped_by is None:
                self._stopped_by, self._given_back = error, given_back
                self._raise_flag(f"{ABORT} {error}")
        self._woken.set()

    def leave(self, error: LakewardError) -> None:
        self._is_leaving = True
        self.stop(error)

    def check(self) -> None:
        """Raises why the round was stopped, if it was."""
        if self._stopped_by is not None:
            raise self._stopped_by

    def wait(self, seconds: float) -> None:
        """Waits; raises at once when the round is stopped."""
        self._woken.wait(seconds)
        self.check()

    def pause(self, seconds: float) -> bool:
        """Waits whether the round is stopped or not; false when the process is leaving."""
        if self._is_leaving:
            return False
        if self._stopped_by is None:
            self._woken.wait(seconds)
        else:
            threading.Event().wait(seconds)
        return not self._is_leaving

    def note_told(self, next_beat_ms: int) -> None:
        """The coordinator has the round's end already; it has something for this job in so many milliseconds."""
        self.told_next_ms = next_beat_ms

    def show(self, **changes: object) -> None:
        self.progress = replace(self.progress, **changes)  # type: ignore[arg-type]

    def show_trouble(self, words: str) -> bool:
        """Whether these are new. Empty: it goes on."""
        words = words[:MOST_WORDS]
        is_new = words != self.progress.trouble
        if is_new:
            self.show(trouble=words)
        return is_new

    def clear(self) -> None:
        """The round is over; its flag is of no use."""
        if self._flag is not None:
            self._flag.unlink(missing_ok=True)

    def _raise_flag(self, words: str) -> None:
        if self._flag is None:
            return
        draft = self._flag.with_suffix(".draft")
        draft.write_text(words)
        draft.replace(self._flag)
