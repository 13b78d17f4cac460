# SPDX-License-Identifier: Apache-2.0
"""Writes one split: Arrow batches in, data files of bounded size out."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass
from typing import Any, ClassVar

import lance
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import FragmentMetadata

from lakeward.lake.core.columns import conform
from lakeward.lake.encoding import RowEncoding
from lakeward.lake.lance import lake_errors
from lakeward.lake.lance.columns import leaf_ids
from lakeward.lake.lance.datafile import FACTS_KEY, FileFacts, round_prefix
from lakeward.lake.lance.table import DATA
from lakeward.lake.tablefiles import sync
from lakeward.model.bucket import partition_values
from lakeward.model.faults import fault_point
from lakeward.model.offsets import OffsetRange
from lakeward.model.schema import BUCKET, OFFSET
from lakeward.protocol.packed import Packed
from lakeward.spi.lake.writer import LakeWriter, WriteTask

_PENDING_BYTES, _PENDING_ROWS = 64 * 1024 * 1024, 1_048_576
"""Of Arrow: what a writer holds besides the library's own pages."""

_TARGET_KEY, _TARGET_BYTES = "lakeward.write.target-file-size-bytes", 1024 * 1024 * 1024
"""Of Arrow, which Lance packs less than Parquet does."""


@dataclass(frozen=True)
class LanceWriteHandle(Packed):
    """What writers need to know of the table. `schema` in Arrow's own bytes; `fields`: ids of the columns in a file;
    `version`: the newest one, on which the round was begun."""

    packed_as: ClassVar = ("lance-handle", 1)

    root: str
    schema: bytes
    fields: tuple[int, ...]
    file_version: str
    version: int
    target_bytes: int

    @classmethod
    def of(cls, root: str, dataset: lance.LanceDataset) -> LanceWriteHandle:
        target = dataset.config().get(_TARGET_KEY, "")
        return cls(
            root=root,
            schema=dataset.schema.serialize().to_pybytes(),
            fields=tuple(leaf_ids(dataset.lance_schema)),
            file_version=dataset.data_storage_version,
            version=dataset.version,
            target_bytes=int(target) if target.isdigit() else _TARGET_BYTES,
        )

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema))

    def fragment(self, name: str, rows: int, size_bytes: int) -> str:
        """Metadata in JSON; its id is the commit's to give."""
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
    """The files of one split, as metadata of fragments in JSON."""

    packed_as: ClassVar = ("lance-write-result", 1)

    metadata: tuple[str, ...]

    @property
    def fragments(self) -> list[Any]:
        return [FragmentMetadata.from_json(text) for text in self.metadata]


class LanceLakeWriter(LakeWriter):
    """`since`: the version that the rows came with, where it is not the coming one."""

    def __init__(self, task: WriteTask, storage_options: dict[str, str], since: int | None = None) -> None:
        self._task, self._options = task, storage_options
        self._handle = handle = LanceWriteHandle.from_bytes(task.handle)
        self._since = handle.version + 1 if since is None else since
        self._schema, self._encoding = handle.arrow_schema, RowEncoding.of("lance", task)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._output: LanceFileWriter | None = None
        self._name, self._written_bytes = "", 0
        self._start = self._stop = 0
        self._fragments: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Cuts batches so that none outgrows this process's memory."""
        rows = max(1, min(_PENDING_ROWS, _PENDING_BYTES * batch.num_rows // max(1, batch.nbytes)))
        for at in range(0, batch.num_rows, rows):
            part = batch.slice(at, rows)
            if self._pending_bytes + part.nbytes > _PENDING_BYTES:
                self._flush()
            self._pending.append(part)
            self._pending_bytes += part.nbytes

    def complete(self) -> bytes | None:
        self._flush()
        if self._output is not None:
            self._close_file()
        return LanceWriteResult(tuple(self._fragments)).to_bytes() if self._fragments else None

    def abort(self) -> None:
        """The library has no way to let a file go but to close it."""
        self._pending, self._pending_bytes = [], 0
        if self._output is not None:
            with lake_errors(str(self._task.table.path), "close a file of"):
                self._output.close()
            self._output = None

    def _flush(self) -> None:
        """Pending rows go to the file; one that has reached its size is closed."""
        if not self._pending:
            return
        pending, path = pa.Table.from_batches(self._pending), str(self._task.table.path)
        table = self._encoding.fit(pending, lambda rows: conform(rows, self._schema, self._partition(), path))
        self._pending, self._pending_bytes = [], 0
        offsets = table.column(OFFSET)
        with lake_errors(str(self._task.table.path), "write a file of"):
            if self._output is None:
                self._open(int(offsets[0].as_py()))
            assert self._output is not None
            fault_point("lake.before-row-group", path=self._location)
            with self._encoding.errors(pending, self._schema):
                for batch in table.combine_chunks().to_batches():
                    self._output.write_batch(batch)
            self._stop = int(offsets[-1].as_py()) + 1
            self._written_bytes += table.nbytes
            if self._written_bytes >= self._handle.target_bytes:
                self._close_file()

    @property
    def _location(self) -> str:
        return f"{self._handle.root}/{DATA}/{self._name}"

    def _open(self, first_offset: int) -> None:
        split = self._task.split
        facts = (split.bucket.number, split.index, split.start, self._task.attempt, uuid.uuid4().hex)
        self._name = f"{round_prefix(self._task.round_id)}{'-'.join(map(str, facts))}.lance"
        self._start, self._written_bytes = first_offset, 0
        if "://" not in self._location:
            os.makedirs(os.path.dirname(self._location), exist_ok=True)
        self._output = LanceFileWriter(
            self._location, self._schema, version=self._handle.file_version, storage_options=self._options
        )

    def _close_file(self) -> None:
        assert self._output is not None
        facts = FileFacts(self._task.split.bucket, OffsetRange(self._start, self._stop), self._since)
        with lake_errors(str(self._task.table.path), "close a file of"):
            self._output.add_schema_metadata(FACTS_KEY, facts.to_text())
            rows = self._output.close()
            sync([self._location])
        assert rows is not None
        assert self._output.size_bytes is not None
        self._fragments.append(self._handle.fragment(self._name, rows, self._output.size_bytes))
        self._output = None
        fault_point("lake.after-file", path=self._location)

    def _partition(self) -> dict[str, str]:
        bucket, keys = self._task.split.bucket, self._task.table.descriptor.partition_keys
        return {**dict(zip(keys, partition_values(bucket.partition), strict=True)), BUCKET: str(bucket.number)}
