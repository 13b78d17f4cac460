# SPDX-License-Identifier: Apache-2.0
"""Log files of a merge-on-read table: blocks of rows (Parquet, or Avro from other engines) and of deleted keys."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.bucketing.javatext import TEXT_OF
from lakeward.bucketing.values import KeyColumn
from lakeward.lake.hudi.meta.avro import parse_bare, read_bare
from lakeward.model import BooleanType, DataType, DateType, TimeType

_MAGIC = b"#HUDI#"
_FORMAT = 1
COMMAND, DELETES, CORRUPT, AVRO_ROWS, HFILE_ROWS, PARQUET_ROWS, CDC_ROWS = range(7)
"""Block types, with Hudi's numbers."""

INSTANT_KEY, SCHEMA_KEY = 0, 2
"""Keys in a block's header."""

LOG_FILE_BYTES = 2 << 30
"""The most bytes read of a file: Hudi begins another at 1 GB. A longer file is cut off in the middle of a block."""

_DELETE_VERSION = 3
_NO_ORDER = b"\x04\x00"
"""The ordering value of a delete if the newest commit wins: an int wrapper with 0."""


@dataclass(frozen=True)
class LogBlock:
    kind: int
    header: Mapping[int, str]
    content: bytes

    @property
    def instant(self) -> str:
        return self.header.get(INSTANT_KEY, "")

    @property
    def row_count(self) -> int:
        """Counts rows without decoding them."""
        if self.kind == PARQUET_ROWS:
            return int(pq.ParquetFile(pa.BufferReader(self.content)).metadata.num_rows)
        if self.kind == AVRO_ROWS:
            return int(struct.unpack_from(">i", self.content, 4)[0])
        return 0

    def rows(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Decodes a block of rows. Raises `ValueError` for an unsupported form."""
        if self.kind == PARQUET_ROWS:
            file = pq.ParquetFile(pa.BufferReader(self.content))
            there = None if columns is None else [c for c in columns if c in file.schema_arrow.names]
            return file.read(columns=there, use_threads=False)
        if self.kind == AVRO_ROWS:
            return _avro_rows(self.content, json.loads(self.header[SCHEMA_KEY]), columns)
        raise ValueError(f"its log has a block of kind {self.kind}")

    def deleted_keys(self) -> list[str]:
        """Decodes the keys in a block of deletes."""
        version, size = struct.unpack_from(">ii", self.content)
        if version != _DELETE_VERSION:
            raise ValueError(f"its log has deletes of version {version}")
        found = read_bare(_DELETE_LIST, self.content[8 : 8 + size])
        return [record["recordKey"] for record in found["deleteRecordList"]]


def encode_block(kind: int, instant: str, schema: str, content: bytes) -> bytes:
    header = _header({SCHEMA_KEY: schema, INSTANT_KEY: instant})
    body = struct.pack(">ii", _FORMAT, kind) + header + struct.pack(">q", len(content)) + content + struct.pack(">i", 0)
    block = _MAGIC + struct.pack(">q", len(body) + 8) + body
    return block + struct.pack(">q", len(block))


def encode_deletes(keys: Sequence[str], partition: str) -> bytes:
    """Encodes a block of deletes."""
    place = b"\x02" + _long(len(partition.encode())) + partition.encode() + _NO_ORDER
    records = bytearray(_long(len(keys)))
    for key in keys:
        raw = key.encode()
        records += b"\x02" + _long(len(raw)) + raw + place
    records += b"\x00"
    return struct.pack(">ii", _DELETE_VERSION, len(records)) + bytes(records)


def read_blocks(data: bytes) -> Iterator[LogBlock]:
    """Reads blocks. Raises `ValueError` for an incomplete file, or one that is not a log file."""
    at = 0
    try:
        while at < len(data):
            if data[at : at + 6] != _MAGIC:
                raise ValueError("a block does not begin as one")
            (size,) = struct.unpack_from(">q", data, at + 6)
            start, end = at + 14, at + 14 + size
            if end > len(data):
                raise ValueError("it ends in the middle of a block")
            version, kind = struct.unpack_from(">ii", data, start)
            if version != _FORMAT:
                raise ValueError(f"a block has version {version}")
            header, at = _read_header(data, start + 8)
            (length,) = struct.unpack_from(">q", data, at)
            yield LogBlock(kind, header, data[at + 8 : at + 8 + length])
            at = end
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"a block cannot be read: {error}") from error


def _header(values: Mapping[int, str]) -> bytes:
    parts = [struct.pack(">i", len(values))]
    for key, value in values.items():
        raw = value.encode()
        parts += [struct.pack(">ii", key, len(raw)), raw]
    return b"".join(parts)


def _read_header(data: bytes, at: int) -> tuple[dict[int, str], int]:
    (count,) = struct.unpack_from(">i", data, at)
    at, header = at + 4, dict[int, str]()
    for _ in range(count):
        key, length = struct.unpack_from(">ii", data, at)
        header[key] = data[at + 8 : at + 8 + length].decode()
        at += 8 + length
    return header, at


def _long(value: int) -> bytes:
    rest, out = value << 1, bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _avro_rows(content: bytes, schema: dict[str, Any], columns: Sequence[str] | None) -> pa.Table:
    """Decodes row by row: only other engines write such blocks."""
    from lakeward.lake.hudi.meta.columns import from_avro_record

    _, count = struct.unpack_from(">ii", content)
    at, rows, parsed = 8, [], parse_bare(schema)
    for _ in range(count):
        (length,) = struct.unpack_from(">i", content, at)
        rows.append(read_bare(parsed, content[at + 4 : at + 4 + length]))
        at += 4 + length
    return from_avro_record(schema, rows, columns)


def _wrapper(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": f"{name}Wrapper", "fields": [{"name": "value", "type": kind}]}


_WRAPPERS = [
    _wrapper(name, kind)
    for name, kind in (
        *(("Boolean", "boolean"), ("Int", "int"), ("Long", "long"), ("Float", "float"), ("Double", "double")),
        *(("Bytes", "bytes"), ("String", "string"), ("Date", "int"), ("Decimal", "bytes"), ("TimeMicros", "long")),
        ("TimestampMicros", "long"),
    )
]
_WRAPPED = [*(f"{w['name']}" for w in _WRAPPERS), _wrapper("LocalDate", "int")]
_DELETE_LIST = {
    "type": "record",
    "name": "HoodieDeleteRecordList",
    "fields": [
        {
            "name": "deleteRecordList",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "HoodieDeleteRecord",
                    "fields": [
                        {"name": "recordKey", "type": ["null", "string"]},
                        {"name": "partitionPath", "type": ["null", "string"]},
                        {
                            "name": "orderingVal",
                            "type": [
                                "null",
                                *_WRAPPERS,
                                {
                                    "type": "record",
                                    "name": "ArrayWrapper",
                                    "fields": [
                                        {
                                            "name": "wrappedValues",
                                            "type": ["null", {"type": "array", "items": ["null", *_WRAPPED]}],
                                        }
                                    ],
                                },
                            ],
                        },
                    ],
                },
            },
        }
    ],
}


_NULL, _EMPTY = "__null__", "__empty__"


def record_keys(rows: pa.Table, names: Sequence[str], types: Sequence[DataType | None], *, is_named: bool) -> pa.Array:
    """Spells record keys as Hudi's key generators do: one field's value alone, or `name:value` of each. A type is None
    for a system column, which is a number."""
    parts = []
    for name, kind in zip(names, types, strict=True):
        text = _texts(name, rows.column(name).combine_chunks(), kind)
        filled = pc.if_else(pc.equal(text, ""), _EMPTY, text).fill_null(_NULL)
        parts.append(pc.binary_join_element_wise(f"{name}:", filled, "") if is_named else filled)
    whole = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, ",")
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole


def _texts(name: str, values: pa.Array, kind: DataType | None) -> pa.Array:
    if pa.types.is_string(values.type):
        return values
    if pa.types.is_integer(values.type):
        return values.cast(pa.string())
    if isinstance(kind, BooleanType):
        return values.cast(pa.string())
    if isinstance(kind, DateType):
        return values.cast(pa.int32()).cast(pa.string())
    assert kind is not None
    column = KeyColumn(name=name, values=values, type=kind)
    if isinstance(kind, TimeType):
        return pa.array(column.time_in("ms")).cast(pa.string())
    encoded = values.dictionary_encode()
    texts = TEXT_OF[type(kind)](KeyColumn(name=name, values=encoded.dictionary, type=kind))
    return pa.array(texts, pa.string()).take(encoded.indices)


def meta_columns(
    keys: pa.Array, *, instant: str, partition: str, file_name: str, number: int, start: int
) -> list[pa.Array]:
    """Adds Hudi's columns. `number` and `start` make the sequence number: of the file in its commit, of the first
    row."""
    count = len(keys)
    rows = pa.array(np.arange(start, start + count, dtype=np.int64)).cast(pa.string())
    sequence = pc.binary_join_element_wise(f"{instant}_{number}_", rows, "")
    return [
        pa.repeat(pa.scalar(instant), count),
        sequence,
        keys,
        pa.repeat(pa.scalar(partition), count),
        pa.repeat(pa.scalar(file_name), count),
    ]
