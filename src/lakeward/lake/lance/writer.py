# SPDX-License-Identifier: Apache-2.0
"""Writes one split into data files, and describes each as its fragment will."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import lance
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import FragmentMetadata

from lakeward.lake.core.columnmap import StoredColumn, without_keys
from lakeward.lake.core.writer import CoreWriter
from lakeward.lake.lance import lake_errors
from lakeward.lake.lance.columns import ids_of, key_names, scan_schema, to_lance_field
from lakeward.lake.lance.datafile import FACTS_KEY, FileFacts, round_prefix
from lakeward.lake.lance.table import DATA
from lakeward.lake.tablefiles import sync
from lakeward.model import LAKE_NAMES, OFFSET, Bucket, OffsetRange
from lakeward.protocol.codec import Packed
from lakeward.spi import WriteTask

_TARGET_KEY, _TARGET_BYTES = "lakeward.write.target-file-size-bytes", 1024 * 1024 * 1024
"""Measured in Arrow, which Lance compresses less than Parquet does."""


@dataclass(frozen=True)
class LanceWriteHandle(Packed):
    """The table's facts for writers. `schema`: in Arrow's own encoding; `fields`: ids of the columns in a file;
    `version`: the newest one, on which the round was begun."""

    packed_as: ClassVar = ("lance-handle", 1)

    root: str
    schema: bytes
    fields: tuple[int, ...]
    file_version: str
    version: int
    target_bytes: int

    @classmethod
    def of(cls, root: str, dataset: lance.LanceDataset, columns: Sequence[StoredColumn]) -> LanceWriteHandle:
        """`columns`: the columns that the round sees."""
        system = [i for key, name in key_names(dataset.lance_schema).items() if name in LAKE_NAMES for i in ids_of(key)]
        target = dataset.config().get(_TARGET_KEY, "")
        return cls(
            root=root,
            schema=scan_schema(columns, to_lance_field).serialize().to_pybytes(),
            fields=(*(i for c in columns for i in ids_of(c.key)), *system),
            file_version=dataset.data_storage_version,
            version=dataset.version,
            target_bytes=int(target) if target.isdigit() else _TARGET_BYTES,
        )

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema))

    def fragment(self, name: str, rows: int, size_bytes: int) -> str:
        """Metadata of the fragment in JSON; the commit assigns its id."""
        major, minor = map(int, self.file_version.split("."))
        file = {
            "path": name,
            "fields": list(self.fields),
            "column_indices": list(range(len(self.fields))),
            "file_major_version": major,
            "file_minor_version": minor,
            "file_size_bytes": size_bytes,
            "base_id": None,
        }
        return json.dumps({"id": 0, "files": [file], "physical_rows": rows})


@dataclass(frozen=True)
class LanceWriteResult(Packed):
    """Files of one split, as fragment metadata in JSON."""

    packed_as: ClassVar = ("lance-write-result", 1)

    metadata: tuple[str, ...]

    @property
    def fragments(self) -> list[Any]:
        return [FragmentMetadata.from_json(text) for text in self.metadata]


class LanceOutput:
    """A data file that is being written. `size` is measured in Arrow, which Lance compresses less than Parquet does."""

    def __init__(self, path: str, file: LanceFileWriter, bucket: Bucket, since: int) -> None:
        self.path, self.file, self.size, self.rows = path, file, 0, 0
        self._bucket, self._since = bucket, since
        self._first: int | None = None
        self._stop = 0

    def write(self, rows: pa.Table) -> None:
        for batch in rows.combine_chunks().to_batches():
            self.file.write_batch(batch)
        offsets = rows.column(OFFSET)
        self._first = int(offsets[0].as_py()) if self._first is None else self._first
        self._stop = int(offsets[-1].as_py()) + 1
        self.size += rows.nbytes

    def close(self) -> None:
        facts = FileFacts(self._bucket, OffsetRange(self._first or 0, self._stop), self._since)
        self.file.add_schema_metadata(FACTS_KEY, facts.to_text())
        self.rows = self.file.close() or 0
        sync([self.path])

    def abandon(self) -> None:
        """Closes the file, as the library has no other way to release it."""
        self.file.close()


class LanceLakeWriter(CoreWriter[LanceOutput]):
    """Writer of one split. `since`: the version that added the rows, if it is not the next one."""

    def __init__(self, task: WriteTask, storage_options: dict[str, str], since: int | None = None) -> None:
        handle, keys = LanceWriteHandle.from_bytes(task.handle), task.table.descriptor.partition_keys
        super().__init__("lance", lake_errors, task, without_keys(handle.arrow_schema), handle.target_bytes, keys)
        self._handle, self._options, self._fragments = handle, storage_options, list[str]()
        self._since = handle.version + 1 if since is None else since

    def open_output(self, first: pa.Table) -> LanceOutput:
        name = f"{round_prefix(self._task.round_id)}{self.file_name()}.lance"
        path, version = f"{self._handle.root}/{DATA}/{name}", self._handle.file_version
        if "://" not in path:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        file = LanceFileWriter(path, self._schema, version=version, storage_options=self._options)
        return LanceOutput(path, file, self._task.split.bucket, self._since)

    def note(self, output: LanceOutput) -> None:
        assert output.file.size_bytes is not None
        name = output.path.rpartition("/")[2]
        self._fragments.append(self._handle.fragment(name, output.rows, output.file.size_bytes))

    def result(self) -> bytes | None:
        return LanceWriteResult(tuple(self._fragments)).to_bytes() if self._fragments else None
