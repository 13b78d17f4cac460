# SPDX-License-Identifier: Apache-2.0
"""The lab's tables in Paimon: another engine that compacts and expires them, a table that somebody drops, and a look at
their commits.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.snapshot.snapshot_commit import SnapshotCommit
from pypaimon.write.file_store_commit import FileStoreCommit

from lakeward.errors import LakewardError
from lakeward.lake.paimon.meta.connection import PaimonConnection
from lakeward.lake.paimon.meta.history import PaimonSnapshot, snapshot_numbers, snapshot_path
from lakeward.lake.tablefiles import LocalFiles
from lakeward.model import TablePath
from lakeward_testing.chaos.commitwatch import CommitWatch
from lakeward_testing.chaos.journal import RunJournal
from lakeward_testing.paimonforeign import PaimonForeignEngine

HURT = (LakewardError, OSError, AssertionError, RuntimeError)
"""How another engine's attempt ends when a round was quicker, or files went meanwhile."""


def break_paimon_table(warehouse: Path, path: TablePath) -> None:
    shutil.rmtree(warehouse / f"{path.database}.db" / path.table)


class PaimonMeddler(PaimonForeignEngine):
    """Puts a snapshot where none is or not at all: stock committers may replace one on a folder, and would be told from
    nothing that the lab looks for."""

    def committer(self, table: Any) -> FileStoreCommit:
        return FileStoreCommit(_Exclusive(table.snapshot_manager()), table, "them")


class _Exclusive(SnapshotCommit):  # type: ignore[misc]
    def __init__(self, snapshots: Any) -> None:
        self._snapshots = snapshots

    def commit(self, base_snapshot_uuid: Any, snapshot: Any, statistics: Any) -> bool:
        path = str(self._snapshots.get_snapshot_path(snapshot.id)).removeprefix("file:")
        return LocalFiles().put_exclusively(os.path.abspath(path), JSON.to_json(snapshot, indent=2))

    def close(self) -> None:
        pass


class SnapshotWatch(CommitWatch):
    """Notes every snapshot of a round."""

    def __init__(self, warehouse: Path, tables: Sequence[str], journal: RunJournal) -> None:
        paths = [TablePath.parse(name) for name in tables]
        self._seen = {str(warehouse / f"{path.database}.db" / path.table): 0 for path in paths}
        self._journal = journal
        super().__init__()

    def look(self) -> None:
        """One that comes late, under a number that had expired, takes itself away again: it does not count."""
        files = LocalFiles()
        for folder, newest in self._seen.items():
            for number in (n for n in snapshot_numbers(files, folder) if n > newest):
                text = files.read(snapshot_path(folder, number))
                if text is not None:
                    found = PaimonSnapshot(json.loads(text))
                    self._journal.note_landed(found.properties, number, int(found.body["timeMillis"]) / 1_000)
                self._seen[folder] = number


def meddle_with_paimon(warehouse: Path, path: TablePath, deed: str) -> bool:
    """`compact` or `expire`; false when it did not come to pass."""
    try:
        engine = PaimonMeddler(PaimonConnection({"warehouse": str(warehouse)}), path)
        {"compact": engine.compact, "expire": engine.expire}[deed]()
    except HURT:
        return False
    return True
