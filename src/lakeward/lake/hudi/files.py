# SPDX-License-Identifier: Apache-2.0
"""Files of one Hudi table in storage: files that rounds staged, and data files of committed rounds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from lakeward.lake.core.files import FolderFiles
from lakeward.lake.hudi import lake_errors
from lakeward.lake.hudi.changes import handle_of
from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.model import RoundId, TableInfo
from lakeward.spi import StoredFile, is_of


class HudiFiles(FolderFiles[HudiGround]):
    errors = staticmethod(lake_errors)

    def __init__(self, table: HudiTable, info: TableInfo) -> None:
        self._table, self._info, self.table, self.storage = table, info, table.name, table.files
        self.folder = self.data_folder = table.own_folder

    def handle(self, ground: HudiGround, round_id: RoundId) -> bytes:
        return handle_of(self._table, self._info, ground, round_id).to_bytes()

    def prefix(self, round_id: RoundId) -> str:
        return f"{self._table.staging(round_id)}/"

    def list_files(self, prefix: str | None) -> Iterable[StoredFile]:
        return self._list(HudiGround.load(self._table), prefix)

    def list_by_prefix(self, prefixes: Sequence[str]) -> Mapping[str, Sequence[StoredFile]]:
        ground = HudiGround.load(self._table) if prefixes else None
        return {} if ground is None else {prefix: self._list(ground, prefix) for prefix in prefixes}

    def delete(self, path: str) -> int:
        """Deletes a file, with Hadoop's checksum file, and a round's folder with its last file."""
        freed = super().delete(path)
        folder, name = os.path.split(path)
        with suppress(OSError):
            os.unlink(os.path.join(folder, f".{name}.crc"))
        with suppress(OSError):
            if folder.startswith(self._table.own_folder):
                os.rmdir(folder)
        return freed

    def _list(self, ground: HudiGround, prefix: str | None) -> list[StoredFile]:
        rounds = self._table.staging("")
        with lake_errors(self._table.name, "list files of"):
            folder = rounds if prefix is None else os.path.dirname(prefix)
            aside = [f for f in self._table.files.walk(folder) if prefix is None or f.path.startswith(prefix)]
        keys = {i.requested: ground.keys_of(i) for i in ground.timeline.snapshots}
        ours = {at: facts for at, facts in keys.items() if facts}
        if prefix is not None:
            name = prefix.removeprefix(rounds).rstrip("/") if prefix.endswith("/") else ""
            ours = {at: facts for at, facts in ours.items() if name and is_of(facts, RoundId(name))}
        return [*aside, *(s.file.stored for s in ground.seen if s.file.instant in ours)]
