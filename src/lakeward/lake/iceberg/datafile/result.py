# SPDX-License-Identifier: Apache-2.0
"""A WriteResult: the files that a split became, with their statistics and offsets, as versioned bytes."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from lakeward.lake.iceberg.datafile.offsetcache import decode_offsets
from lakeward.lake.iceberg.meta.manifests import LAYOUT
from lakeward.model.bucket import Bucket
from lakeward.model.offsetset import OffsetSet
from lakeward.model.versioned import pack, unpack

_KIND, _VERSION = "iceberg-result", 1
Counts = dict[int, int]
Bounds = dict[int, bytes]


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """`offsets`: its encoded offset set, for PK tables; empty for log tables, whose rows nobody replaces."""

    path: str
    record_count: int
    size_bytes: int
    first_offset: int
    last_offset: int
    column_sizes: Counts = field(default_factory=dict)
    value_counts: Counts = field(default_factory=dict)
    null_value_counts: Counts = field(default_factory=dict)
    nan_value_counts: Counts = field(default_factory=dict)
    lower_bounds: Bounds = field(default_factory=dict)
    upper_bounds: Bounds = field(default_factory=dict)
    split_offsets: list[int] = field(default_factory=list)
    sort_order_id: int | None = None
    offsets: bytes = b""

    def data_file(
        self, partition: Record, content: DataFileContent = DataFileContent.DATA, equality_ids: list[int] | None = None
    ) -> DataFile:
        return DataFile.from_args(
            _table_format_version=LAYOUT,
            content=content,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=partition,
            record_count=self.record_count,
            file_size_in_bytes=self.size_bytes,
            column_sizes=self.column_sizes,
            value_counts=self.value_counts,
            null_value_counts=self.null_value_counts,
            nan_value_counts=self.nan_value_counts,
            lower_bounds=self.lower_bounds,
            upper_bounds=self.upper_bounds,
            key_metadata=None,
            split_offsets=self.split_offsets,
            equality_ids=equality_ids,
            sort_order_id=self.sort_order_id,
        )

    def offset_set(self) -> OffsetSet:
        return decode_offsets(self.offsets)


@dataclass(frozen=True, kw_only=True)
class WriteResult:
    """`keys`: files of keys whose rows of earlier commits, and of earlier results of the same round, go."""

    bucket: Bucket
    schema_id: int
    files: tuple[WrittenFile, ...]
    keys: tuple[WrittenFile, ...] = ()

    def to_bytes(self) -> bytes:
        body = {
            "partition": self.bucket.partition,
            "bucket": self.bucket.number,
            "schema_id": self.schema_id,
            "files": [_file_body(f) for f in self.files],
            "keys": [_file_body(f) for f in self.keys],
        }
        return pack(_KIND, _VERSION, body, [f.offsets for f in self.files])

    @classmethod
    def from_bytes(cls, data: bytes) -> WriteResult:
        _, body, blobs = unpack(_KIND, _VERSION, data)
        files = tuple(_file_from(b, blob) for b, blob in zip(body["files"], blobs, strict=True))
        keys = tuple(_file_from(b, b"") for b in body.get("keys", ()))
        return cls(
            bucket=Bucket(body["partition"], body["bucket"]), schema_id=body["schema_id"], files=files, keys=keys
        )


_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_PLAIN = ("path", "record_count", "size_bytes", "first_offset", "last_offset", "split_offsets", "sort_order_id")


def _file_body(file: WrittenFile) -> dict[str, Any]:
    body: dict[str, Any] = {name: getattr(file, name) for name in (*_PLAIN, *_COUNTS)}
    for name in _BOUNDS:
        body[name] = {k: base64.b64encode(v).decode() for k, v in getattr(file, name).items()}
    return body


def _file_from(body: dict[str, Any], offsets: bytes) -> WrittenFile:
    facts: dict[str, Any] = {name: body[name] for name in _PLAIN}
    facts |= {name: {int(k): v for k, v in body[name].items()} for name in _COUNTS}
    facts |= {name: {int(k): base64.b64decode(v) for k, v in body[name].items()} for name in _BOUNDS}
    return WrittenFile(**facts, offsets=offsets)
