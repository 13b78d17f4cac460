# SPDX-License-Identifier: Apache-2.0
"""A metadata file is as large as its table's owner likes: it is refused before it fills the memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from lakeward.errors import LakeMetadataTooLarge
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.connect.metadatafile import load_metadata
from lakeward.model import TablePath

SCHEMA = Schema(NestedField(1, "n", LongType()))


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[IcebergConnection]:
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    connection = IcebergConnection({**options, "max-metadata-bytes": "20000"})
    connection.catalog.create_namespace("s")
    yield connection
    connection.close()


def test_a_megabyte_of_gzip_is_not_unpacked(tmp_path: Path) -> None:
    bomb = tmp_path / "v1.gz.metadata.json"
    bomb.write_bytes(gzip.compress(b'{"format-version": 2, "note": "' + b" " * (160 << 20) + b'"}'))
    tracemalloc.start()
    try:
        with pytest.raises(LakeMetadataTooLarge, match="max-metadata-bytes"):
            load_metadata(PyArrowFileIO(), f"file://{bomb}", {})
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_what_is_small_is_read_packed_or_not(connection: IcebergConnection, tmp_path: Path) -> None:
    table = connection.catalog.create_table("s.a", SCHEMA)
    plain = Path(table.metadata_location.removeprefix("file://"))
    packed = tmp_path / "v1.gz.metadata.json"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert load_metadata(PyArrowFileIO(), f"file://{packed}", {}) == table.metadata
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(ValueError, match="cut off"):
        load_metadata(PyArrowFileIO(), f"file://{packed}", {})


def test_a_table_does_not_grow_beyond_what_is_read(connection: IcebergConnection) -> None:
    table = connection.catalog.create_table("s.a", SCHEMA)
    large = SetPropertiesUpdate(updates={"comment": "x" * 20_000})
    with pytest.raises(LakeMetadataTooLarge):
        connection.catalog.commit_table(table, (), (large,))
    assert connection.load(TablePath("s", "a")).properties.get("comment") is None
    file = Path(table.metadata_location.removeprefix("file://"))
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "properties": {"comment": "x" * 20_000}}))
    connection.close()
    with pytest.raises(LakeMetadataTooLarge):
        connection.load(TablePath("s", "a"))
