# SPDX-License-Identifier: Apache-2.0
"""A KV snapshot from its files to rows, in both layouts of its values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from lakeward.hot.fluss.kv.kvsnapshot import KvSnapshots
from lakeward.hot.fluss.tables import VALUE_LAYOUT
from lakeward.hot.fluss.wire.servers import LogBucket
from lakeward.model import Bucket, Column, Schema, TableDescriptor, TableId, TableInfo, TablePath, parse_type
from lakeward.spi import KvSnapshot
from tests.unit.hot.fluss.kv.test_kvrows import TAGGED

COLUMNS = tuple(
    Column(name=name, type=parse_type(kind))
    for name, kind in (("id", "BIGINT NOT NULL"), ("word", "STRING"), ("share", "DOUBLE"))
)
TAG_HEX = 16


class _Servers:
    """A coordinator that knows one snapshot, which lies in a folder."""

    def __init__(self, folder: Path) -> None:
        self._files = [{"remote": str(f), "local": f.name} for f in sorted(folder.iterdir()) if f.name != "LOCK"]

    def call_coordinator(self, _api: object, _request: object) -> dict[str, Any]:
        return {"log_offset": 3, "files": self._files}


@pytest.mark.parametrize("layout", [None, "1", "2"])
def test_values_of_either_layout(tmp_path: Path, layout: str | None) -> None:
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    for number, text in enumerate(TAGGED):
        database[bytes([number])] = bytes.fromhex(text if layout == "2" else text[TAG_HEX:])
    database.close()
    schema = Schema(columns=COLUMNS, schema_id=3)
    properties = {} if layout is None else {VALUE_LAYOUT: layout}
    descriptor = TableDescriptor(schema=schema, primary_key=("id",), bucket_count=1, properties=properties)
    table = TableInfo(path=TablePath("shop", "t"), table_id=TableId("1"), descriptor=descriptor)
    snapshots = KvSnapshots(_Servers(tmp_path / "db"), lambda _table, _schema_id: COLUMNS)  # type: ignore[arg-type]
    taken = KvSnapshot(bucket=Bucket("", 0), snapshot_id="1", log_offset=3, has_offsets=False)
    batches = list(snapshots.read(table, taken, LogBucket(1, None, 0), ["id", "word", "share"]))
    rows = [(r["id"], r["word"], r["share"]) for batch in batches for r in batch.to_pylist()]
    assert rows == [(7, "seven", 0.5), (-1, None, None), (1 << 40, "größer", -2.25)]
