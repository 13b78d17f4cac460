# SPDX-License-Identifier: Apache-2.0
"""Commits to a Paimon table as Fluss's own Flink job makes them, for tests that have no cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeward.lake.paimon.meta.connection import PaimonConnection
from lakeward.model import TablePath
from lakeward.spi import COMMIT_USER, OFFSETS_KEY
from lakeward_testing.paimonforeign import PaimonForeignEngine


class PaimonFlinkJob:
    """`folder`: where Fluss keeps offsets. Only the newest file of them is kept, as on a cluster."""

    def __init__(self, connection: PaimonConnection, path: TablePath, table_id: str, folder: Path) -> None:
        self._engine = PaimonForeignEngine(connection, path)
        self._path, self._table_id, self._folder, self._count = path, table_id, folder, 0

    def commit(self, rows: Sequence[tuple[int, pa.Table]], offsets: Sequence[int]) -> None:
        """Rows by bucket; those of a PK table have the column `_VALUE_KIND`. `offsets`: by bucket, all of them."""
        self._engine.insert_all(rows)
        self.say({"bucket_offsets": list(offsets)})

    def say(self, offsets: Mapping[str, Any] | None) -> None:
        """Makes the head a commit of the job. None: its file of offsets is gone."""
        self._count += 1
        folder = self._folder / "lake" / self._path.database / f"{self._path.table}-{self._table_id}" / "metadata"
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        file = folder / f"{self._count}.offsets"
        if offsets is not None:
            file.write_text(json.dumps({"version": 1, "table_id": int(self._table_id), **offsets}))
        table = self._engine.table()
        head = Path(table.table_path) / "snapshot" / f"snapshot-{table.snapshot_manager().get_latest_snapshot().id}"
        body = json.loads(head.read_text())
        head.write_text(json.dumps({**body, "commitUser": COMMIT_USER, "properties": {OFFSETS_KEY: str(file)}}))
