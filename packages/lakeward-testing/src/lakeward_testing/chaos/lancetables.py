# SPDX-License-Identifier: Apache-2.0
"""The lab's tables in Lance: the library itself, which compacts them and cleans up, and a look at their commits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lakeward.errors import LakewardError
from lakeward.lake.lance.storage import LanceLakeStorage
from lakeward.model import TablePath
from lakeward_testing.chaos.commitwatch import CommitWatch
from lakeward_testing.chaos.journal import RunJournal
from lakeward_testing.lanceforeign import LanceForeignEngine

HURT = (LakewardError, OSError, ValueError, RuntimeError)
"""How another engine's attempt ends when a round was quicker, or files went meanwhile."""


class VersionWatch(CommitWatch):
    """Notes every version of a round. One that comes late, under a number that was cleaned away, takes itself away
    again: it does not count."""

    def __init__(self, warehouse: Path, tables: Sequence[str], journal: RunJournal) -> None:
        lake = LanceLakeStorage(str(warehouse))
        self._seen = {lake.table(TablePath.parse(name)): -1 for name in tables}
        self._journal = journal
        super().__init__()

    def look(self) -> None:
        for table, newest in self._seen.items():
            with suppress(LakewardError):
                for number in (v for v in table.versions() if v > newest):
                    version = table.version(number)
                    self._journal.note_landed(version.keys, number, version.committed_at_ms / 1_000)
                    self._seen[table] = number


def meddle_with_lance(warehouse: Path, path: TablePath, deed: str) -> bool:
    """`compact` or `expire`; false when it did not come to pass."""
    try:
        engine = LanceForeignEngine(LanceLakeStorage(str(warehouse)).table(path))
        {"compact": engine.compact, "expire": engine.clean_up}[deed]()
    except HURT:
        return False
    return True
