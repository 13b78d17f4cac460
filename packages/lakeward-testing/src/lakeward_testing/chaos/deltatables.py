# SPDX-License-Identifier: Apache-2.0
"""The lab's tables in Delta: another engine that compacts them and cleans their log up, and a look at their commits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lakeward.errors import LakewardError
from lakeward.lake.delta.plugin import DeltaLakeStorage
from lakeward.model import TablePath
from lakeward_testing.chaos.commitwatch import CommitWatch
from lakeward_testing.chaos.journal import RunJournal
from lakeward_testing.deltaforeign import DeltaForeignEngine

HURT = (LakewardError, OSError, AssertionError)
"""How another engine's attempt ends when a round was quicker, or files went meanwhile."""


class EntryWatch(CommitWatch):
    """Notes every log entry of a round. One that comes late, under a version that was cleaned away, takes itself away
    again: it does not count."""

    def __init__(self, warehouse: Path, tables: Sequence[str], journal: RunJournal) -> None:
        lake = DeltaLakeStorage(str(warehouse))
        self._seen = {lake.log(TablePath.parse(name)): -1 for name in tables}
        self._journal = journal
        super().__init__()

    def look(self) -> None:
        for log, newest in self._seen.items():
            with suppress(LakewardError):
                for entry in log.entries([v for v in log.listing().entries if v > newest]):
                    self._journal.note_landed(entry.keys, entry.version, entry.committed_at_ms / 1_000)
                    self._seen[log] = entry.version


def meddle_with_delta(warehouse: Path, path: TablePath, deed: str) -> bool:
    """`compact` or `expire`; false when it did not come to pass."""
    try:
        engine = DeltaForeignEngine(DeltaLakeStorage(str(warehouse)).log(path))
        {"compact": engine.optimize, "expire": engine.clean_log}[deed]()
    except HURT:
        return False
    return True
