# SPDX-License-Identifier: Apache-2.0
"""Files of one Paimon table in storage: ours are recognised by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from lakeward.lake.core.files import StoredFiles
from lakeward.lake.paimon.changes import PaimonGround
from lakeward.lake.paimon.meta.connection import PaimonConnection, lake_errors
from lakeward.lake.paimon.meta.history import table_folder
from lakeward.lake.paimon.meta.layout import has_prefix, is_ours, round_prefix
from lakeward.lake.paimon.writer import HANDLE_KIND, VERSION
from lakeward.lake.s3files import files_of
from lakeward.model import RoundId, TableInfo, pack
from lakeward.spi import StoredFile


class PaimonFiles(StoredFiles[PaimonGround]):
    def __init__(self, connection: PaimonConnection, info: TableInfo) -> None:
        self._connection, self._path, self._where = connection, info.path, str(info.path)

    @cached_property
    def _lake_table(self) -> Any:
        return self._connection.load(self._path)

    def handle(self, ground: PaimonGround, round_id: RoundId) -> bytes:
        return pack(HANDLE_KIND, VERSION, {"prefix": round_prefix(ground.history.folder, round_id)})

    def prefix(self, round_id: RoundId) -> str:
        return round_prefix(table_folder(self._lake_table), round_id)

    def list_files(self, prefix: str | None) -> Iterable[StoredFile]:
        return [f for f in self._listed() if prefix is None or has_prefix(f.name, prefix)]

    def list_by_prefix(self, prefixes: Sequence[str]) -> Mapping[str, Sequence[StoredFile]]:
        listed = list(self._listed()) if prefixes else []
        return {prefix: [f for f in listed if has_prefix(f.name, prefix)] for prefix in prefixes}

    def delete(self, path: str) -> int:
        with lake_errors(self._where, "delete files of"):
            return files_of(self._lake_table).delete(path)

    def probe(self) -> None:
        lake_table = self._connection.load(self._path)
        with lake_errors(self._where, "write and delete a probe file of"):
            files_of(lake_table).probe(table_folder(lake_table))

    def _listed(self) -> Iterator[StoredFile]:
        lake_table = self._connection.load(self._path)
        with lake_errors(self._where, "list files of"):
            yield from (f for f in files_of(lake_table).walk(table_folder(lake_table)) if is_ours(f.name))
