# SPDX-License-Identifier: Apache-2.0
"""A piece of a union read comes out of its bytes as it went in."""

from __future__ import annotations

from lakeward.model import (
    Bucket,
    Column,
    OffsetRange,
    Schema,
    SnapshotId,
    TableDescriptor,
    TableInfo,
    TablePath,
    new_table_id,
    parse_type,
)
from lakeward.read.piece import ReadPiece
from lakeward.spi import KvSnapshot

TABLE = TableInfo(
    path=TablePath("db", "t"),
    table_id=new_table_id(),
    descriptor=TableDescriptor(schema=Schema(columns=(Column(name="a b", type=parse_type("ARRAY<INT>")),))),
)
P1 = Bucket("2026-11-16", 1)


def test_bytes_and_back() -> None:
    one = ReadPiece(
        table=TABLE,
        bucket=P1,
        snapshot_id=SnapshotId("12"),
        tail=OffsetRange(3, 9),
        hot_name="embedded",
        hot_options={"server": "http://127.0.0.1:1"},
        lake_name="iceberg",
        lake_options={"uri": "x"},
        kv=KvSnapshot(bucket=P1, snapshot_id="7", log_offset=5),
    )
    rest = ReadPiece(
        table=TABLE,
        bucket=None,
        snapshot_id=None,
        tail=None,
        hot_name="h",
        hot_options={},
        mixed={P1: OffsetRange(0, 2)},
    )
    for piece in (one, rest):
        assert ReadPiece.from_bytes(piece.to_bytes()) == piece
