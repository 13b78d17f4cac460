# SPDX-License-Identifier: Apache-2.0
"""A file on this machine, under the job's name, with the tables that the job has from Fluss. A job that was killed and
comes back gives them back at once, where Fluss would wait 120 seconds for a heartbeat. Fluss accepts the end of a table
from any peer that names its epoch, and no two hand-outs have the same epoch while a coordinator lives: the file affects
only tables that were handed to the job of that name. Before 1.0 two starts of a coordinator cannot be told apart, so
the file is not written there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from lakeward.config.cache import cache_folder
from lakeward.model import Clock, Epoch, JobName, TableId

Held = tuple[TableId, Epoch]

TOUCH_S = 10.0
OLDEST_MS = 135_000
"""Fluss's own patience: 120 s, looked at every 15. What an older note names has been given to others."""


class HeldNote:
    """Used by one thread. A note that cannot be written or read costs the two minutes, nothing else."""

    def __init__(self, cluster: str, clock: Clock, folder: Path | None = None) -> None:
        self._cluster, self._clock, self._folder = cluster, clock, folder
        self._noted: frozenset[Held] | None = None
        self._touched = 0.0

    def find_left(self, job: JobName) -> list[Held]:
        """Tables that a job of this name held when it was killed, until `given_back`: Fluss may be unavailable at that
        moment."""
        if self._noted is not None:
            return []
        with suppress(OSError, ValueError, TypeError, KeyError):
            note = json.loads(self._path(job).read_text())
            if note["held"] and self._clock.now_ms() - note["at_ms"] <= OLDEST_MS:
                return [(TableId(table), Epoch(epoch)) for table, epoch in note["held"]]
        self.given_back()
        return []

    def given_back(self) -> None:
        """The tables are no longer held; from now on the file is this job's."""
        self._noted = frozenset()

    def keep(self, job: JobName, held: Iterable[Held]) -> None:
        """Nothing for who never asked for tables: that is no job."""
        if self._noted is None:
            return
        now, told = self._clock.monotonic(), frozenset(held)
        if told == self._noted and (not told or now - self._touched < TOUCH_S):
            return
        self._noted, self._touched = told, now
        self._write(job, {"held": sorted(told)})

    def is_known_in_work(self, table: TableId, epoch: Epoch, lake: str | None) -> bool:
        """Whether a question during one lease found the table in work, and neither epoch nor lake has changed since."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            note = json.loads(self._path(f"table {table}").read_text())
            is_recent = 0 <= self._clock.now_ms() - note["at_ms"] <= OLDEST_MS
            return is_recent and [note["epoch"], note["lake"]] == [epoch, lake]
        return False

    def note_in_work(self, table: TableId, epoch: Epoch, lake: str | None) -> None:
        self._write(f"table {table}", {"epoch": epoch, "lake": lake})

    def _write(self, name: str, facts: Mapping[str, object]) -> None:
        with suppress(OSError):
            path = self._path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps({"at_ms": self._clock.now_ms(), **facts}))
            draft.replace(path)

    def _path(self, name: str) -> Path:
        digest = hashlib.sha256(f"{self._cluster}\n{name}".encode()).hexdigest()[:32]
        return (self._folder or cache_folder()) / "fluss" / f"{digest}.json"
