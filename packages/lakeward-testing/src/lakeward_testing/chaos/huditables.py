# SPDX-License-Identifier: Apache-2.0
"""The lab's tables in Hudi: another engine that compacts them and archives their timeline, and a look at commits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lakeward.errors import LakewardError
from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.plugin import HudiLakeStorage
from lakeward.model import TablePath
from lakeward_testing.chaos.commitwatch import CommitWatch
from lakeward_testing.chaos.journal import RunJournal
from lakeward_testing.hudiforeign import HudiForeignEngine

HURT = (LakewardError, OSError, AssertionError)
"""How another engine's attempt ends when a round was quicker, or files went meanwhile."""


class InstantWatch(CommitWatch):
    """Notes every instant that a round completed."""

    def __init__(self, warehouse: Path, tables: Sequence[str], journal: RunJournal) -> None:
        lake = HudiLakeStorage(str(warehouse))
        self._tables = {name: lake.table(TablePath.parse(name)) for name in tables}
        self._seen = dict.fromkeys(tables, "")
        self._journal = journal
        super().__init__()

    def look(self) -> None:
        for name, table in self._tables.items():
            with suppress(LakewardError):
                ground = HudiGround.load(table)
                for instant in ground.timeline.snapshots:
                    if instant.completed > self._seen[name]:
                        keys, at = ground.keys_of(instant), instant.completed_at_ms / 1_000
                        self._journal.note_landed(keys, int(instant.completed), at)
                        self._seen[name] = instant.completed


def meddle_with_hudi(warehouse: Path, path: TablePath, deed: str) -> bool:
    """`compact` or `expire`; false when it did not come to pass. Under the lock, as any writer of Hudi's beside us."""
    try:
        table = HudiLakeStorage(str(warehouse)).table(path)
        engine = HudiForeignEngine(table)
        with table.lock():
            {"compact": engine.compact, "expire": engine.archive}[deed]()
    except HURT:
        return False
    return True
