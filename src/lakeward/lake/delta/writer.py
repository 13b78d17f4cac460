# SPDX-License-Identifier: Apache-2.0
"""Writes one split into data files, and says of each what the log will."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from lakeward.lake.core.writer import CoreWriter, ParquetDataFile
from lakeward.lake.delta import lake_errors
from lakeward.lake.delta.columns import file_schema, parse_schema_string, table_schema
from lakeward.lake.delta.meta.actions import WHOLE, AddFile
from lakeward.lake.delta.stats import file_stats
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import BUCKET, RoundId
from lakeward.protocol.codec import Packed
from lakeward.spi import WriteTask

_TARGET_KEY, _TARGET_BYTES = "delta.targetFileSize", 512 * 1024 * 1024
_OURS = "lakeward-"


@dataclass(frozen=True)
class DeltaWriteHandle(Packed):
    """What writers need to know of the table. `schema` is the log's spelling of its columns."""

    packed_as: ClassVar = ("delta-handle", 1)

    root: str
    schema: str
    partition_columns: tuple[str, ...]
    target_bytes: int

    @classmethod
    def of(cls, root: str, metadata: dict[str, Any]) -> DeltaWriteHandle:
        target = (metadata.get("configuration") or {}).get(_TARGET_KEY, "")
        size = int(target) if target.isdigit() else _TARGET_BYTES
        return cls(root, metadata["schemaString"], tuple(metadata["partitionColumns"]), size)


@dataclass(frozen=True)
class DeltaWriteResult(Packed):
    """The files of one split, as `add` actions in JSON."""

    packed_as: ClassVar = ("delta-write-result", 1)

    actions: tuple[str, ...]

    @property
    def files(self) -> list[AddFile]:
        return [AddFile(json.loads(action)) for action in self.actions]


def round_folder(round_id: RoundId) -> str:
    """Below the table's: what a round writes lies together, vectors too, which Delta names by folder and id."""
    return f"{_OURS}{round_id}"


def is_round_folder(name: str) -> bool:
    return name.startswith(_OURS)


class DeltaLakeWriter(CoreWriter[ParquetDataFile]):
    def __init__(self, files: TableFiles, task: WriteTask) -> None:
        handle = DeltaWriteHandle.from_bytes(task.handle)
        schema = file_schema(table_schema(parse_schema_string(handle.schema)))
        keys = [c for c in handle.partition_columns if c != BUCKET]
        super().__init__("delta", lake_errors, task, schema, handle.target_bytes, keys)
        self._files, self._handle, self._actions = files, handle, list[dict[str, Any]]()

    def open_output(self, first: pa.Table) -> ParquetDataFile:
        path = f"{self._handle.root}/{round_folder(self._task.round_id)}/{WHOLE}{self.file_name()}.parquet"
        return ParquetDataFile(self._files, path, self._schema, store_decimal_as_integer=True)

    def note(self, output: ParquetDataFile) -> None:
        self._actions.append(
            {
                "path": output.path.removeprefix(f"{self._handle.root}/"),
                "partitionValues": self._values,
                "size": output.size,
                "modificationTime": int(time.time() * 1000),
                "dataChange": True,
                "stats": file_stats(output.metadata, self._handle.partition_columns),
            }
        )

    def result(self) -> bytes | None:
        return DeltaWriteResult(tuple(map(json.dumps, self._actions))).to_bytes() if self._actions else None
