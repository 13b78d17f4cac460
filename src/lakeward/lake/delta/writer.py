# SPDX-License-Identifier: Apache-2.0
"""Writes one split into data files, and describes each as the log will."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from lakeward.lake.core.columnmap import stored_key
from lakeward.lake.core.writer import CoreWriter, ParquetDataFile
from lakeward.lake.delta import lake_errors
from lakeward.lake.delta.columns import (
    file_schema,
    parse_schema_string,
    physical_name,
    physical_schema,
    table_schema,
    user_fields,
)
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
    """The table's facts for writers. `schema`: a schema string of the columns, with the names that the round has for
    them; partition columns too."""

    packed_as: ClassVar = ("delta-handle", 1)

    root: str
    schema: str
    partition_columns: tuple[str, ...]
    target_bytes: int

    @classmethod
    def of(cls, root: str, metadata: dict[str, Any], schema: str | None = None) -> DeltaWriteHandle:
        """`schema`: set if the round sees other columns than the log has."""
        target = (metadata.get("configuration") or {}).get(_TARGET_KEY, "")
        size, text = int(target) if target.isdigit() else _TARGET_BYTES, metadata["schemaString"]
        names = {physical_name(f): f["name"] for f in user_fields(schema or text)}
        physical = {f["name"]: physical_name(f) for f in user_fields(text)}
        partitions = tuple(names.get(physical.get(c, c), c) for c in metadata["partitionColumns"])
        return cls(root, schema or text, partitions, size)


@dataclass(frozen=True)
class DeltaWriteResult(Packed):
    """Files of one split, as `add` actions in JSON."""

    packed_as: ClassVar = ("delta-write-result", 1)

    actions: tuple[str, ...]

    @property
    def files(self) -> list[AddFile]:
        return [AddFile(json.loads(action)) for action in self.actions]


def round_folder(round_id: RoundId) -> str:
    """Returns the round's folder below the table's. All its files are there, vectors too, which Delta names by folder
    and id."""
    return f"{_OURS}{round_id}"


def is_round_folder(name: str) -> bool:
    return name.startswith(_OURS)


class DeltaLakeWriter(CoreWriter[ParquetDataFile]):
    def __init__(self, files: TableFiles, task: WriteTask) -> None:
        handle = DeltaWriteHandle.from_bytes(task.handle)
        logical = table_schema(parse_schema_string(handle.schema))
        schema, keys = file_schema(logical), [c for c in handle.partition_columns if c != BUCKET]
        super().__init__("delta", lake_errors, task, schema, handle.target_bytes, keys)
        self._files, self._handle, self._actions = files, handle, list[dict[str, Any]]()
        self._stored = physical_schema(schema, logical, handle.schema)
        self._partition = {stored_key(logical.field(name)): value for name, value in self._values.items()}

    def open_output(self, first: pa.Table) -> ParquetDataFile:
        path = f"{self._handle.root}/{round_folder(self._task.round_id)}/{WHOLE}{self.file_name()}.parquet"
        return ParquetDataFile(self._files, path, self._stored, store_decimal_as_integer=True)

    def append(self, output: ParquetDataFile, rows: pa.Table) -> None:
        output.write(pa.Table.from_arrays(rows.columns, schema=self._stored))

    def note(self, output: ParquetDataFile) -> None:
        self._actions.append(
            {
                "path": output.path.removeprefix(f"{self._handle.root}/"),
                "partitionValues": self._partition,
                "size": output.size,
                "modificationTime": int(time.time() * 1000),
                "dataChange": True,
                "stats": file_stats(output.metadata, self._partition),
            }
        )

    def result(self) -> bytes | None:
        return DeltaWriteResult(tuple(map(json.dumps, self._actions))).to_bytes() if self._actions else None
