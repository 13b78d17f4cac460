# SPDX-License-Identifier: Apache-2.0
"""Files of a lake's metadata that are large, or unpack into much, are refused before a library decodes them."""

from __future__ import annotations

import bz2
import io
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from lakeward.errors import LakeMetadataTooLarge, LakewardError
from lakeward.lake.metadatabounds import LIMIT_OPTION, MetadataBounds, positions_in
from tests.unit.lake.test_allowedpaths import FORMATS, filled, ids, open_lake

SMALL = MetadataBounds(100_000)
_SYNC = b"s" * 16
_EMPTY = {"type": "record", "name": "e", "fields": []}
_RECORD = {"type": "record", "name": "r", "fields": [{"name": "text", "type": "string"}]}


def container(codec: str, block: bytes, count: int, schema: Any = _RECORD) -> bytes:
    """An Avro file of one block that says what it is told to."""
    out = io.BytesIO()
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    head = {"magic": b"Obj\x01", "meta": meta, "sync": _SYNC}
    fields = [
        {"name": "magic", "type": {"type": "fixed", "name": "m", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "s", "size": 16}},
    ]
    fastavro.schemaless_writer(out, {"type": "record", "name": "h", "fields": fields}, head)
    fastavro.schemaless_writer(out, "long", count)
    fastavro.schemaless_writer(out, "bytes", block)
    return out.getvalue() + _SYNC


def deflated(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(data) + packing.flush()


def packed(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(pa.Codec(codec).compress(data, asbytes=True))


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "bzip2", "snappy"])
def test_what_writers_write_passes(codec: str) -> None:
    out = io.BytesIO()
    fastavro.writer(out, _RECORD, [{"text": "a" * n} for n in range(300)], codec=codec, sync_interval=1_000)
    SMALL.check_avro("file", out.getvalue())


@pytest.mark.parametrize(
    ("codec", "pack"),
    [("deflate", deflated), ("zstandard", packed("zstd")), ("bzip2", bz2.compress), ("snappy", packed("snappy"))],
)
def test_a_block_that_unpacks_into_much_is_refused(codec: str, pack: Callable[[bytes], bytes]) -> None:
    bomb = container(codec, pack(bytes(1_000_000)), 1)
    assert len(bomb) < 60_000
    with pytest.raises(LakeMetadataTooLarge, match=LIMIT_OPTION):
        SMALL.check_avro("file", bomb)


@pytest.mark.parametrize(
    ("schema", "block", "count"),
    [
        (_RECORD, b"\x00", 1 << 40),
        ({"type": "record", "name": "r", "fields": []}, b"", 1 << 40),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00", 1),
        ({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}, b"\xfe\xff\xff\xff\x0f\x00", 1),
        ({"type": "array", "items": {**_EMPTY, "fields": [{"name": "e", "type": _EMPTY}]}}, b"\x00", 1),
    ],
)
def test_values_that_take_no_room_are_refused(schema: Any, block: bytes, count: int) -> None:
    """A library would make billions of them."""
    with pytest.raises(ValueError, match="broken Avro"):
        SMALL.check_avro("file", container("null", block, count, schema))


@pytest.mark.parametrize("data", [b"", b"Obj\x01", b"Obj\x01" + b"\xff" * 40, b"{}", container("xz", b"x", 1)])
def test_what_is_no_such_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="broken Avro"):
        SMALL.check_avro("file", data)


def test_a_parquet_footer_is_believed_before_rows_are_read() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array([0] * 1_000_000, pa.int64())}), out, use_dictionary=False)
    assert len(out.getvalue()) < SMALL.limit * 10
    with pytest.raises(LakeMetadataTooLarge):
        SMALL.check_parquet("file", pq.read_metadata(io.BytesIO(out.getvalue())))


def test_a_vector_of_billions_is_refused() -> None:
    many = BitMap64(range(0))
    many.add_range(0, 1 << 32)
    assert len(many.serialize()) < 1_000_000
    with pytest.raises(ValueError, match="4294967296 rows"):
        positions_in(many)
    assert positions_in(BitMap64([3, 1])).tolist() == [1, 3]


@pytest.mark.parametrize("name", FORMATS)
def test_every_file_of_metadata_is_bounded(name: str, tmp_path: Path) -> None:
    """Each is made longer than the lake's limit, by a hole that takes no disk; rows and deletes are none."""
    table = filled(open_lake(name, tmp_path), "ann", 0)
    metadata = [p for p in sorted((tmp_path / "w").rglob("*")) if p.is_file() and is_metadata(name, p)]
    assert len(metadata) > 1
    refused = 0
    for file in metadata:
        before = file.read_bytes()
        os.truncate(file, 1 << 40)
        fresh = open_lake(name, tmp_path)
        reader = fresh.open_reader(table)
        for attempt in (reader.load_base, reader.snapshots, lambda lake=fresh: ids(lake, table)):
            try:
                attempt()
            except LakewardError as error:
                refused += "max-metadata-bytes" in str(error)
        file.write_bytes(before)
    assert ids(open_lake(name, tmp_path), table) == [0, 1, 2]
    assert refused, "nothing looked at a size"


def is_metadata(name: str, file: Path) -> bool:
    folders = {"iceberg": "metadata", "delta": "_delta_log", "paimon": "", "lance": "_versions", "hudi": ".hoodie"}
    return file.suffix not in (".parquet", ".lance", ".orc") and folders[name] in (*file.parts, "")
