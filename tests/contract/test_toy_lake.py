# SPDX-License-Identifier: Apache-2.0
"""A format as small as `lake/core` allows keeps the lake contract."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.model import Bucket, OffsetRange, SnapshotId, TableInfo
from lakeward.spi import LakeFile, LakeStorage
from lakeward_testing.lakes import LakeContract
from lakeward_testing.lakes.suite import B0
from lakeward_testing.scripted_log import Row
from tests.kit.toylake import STORAGE, ToyFiles, ToyLog, ToyStorage


class TestToyLake(LakeContract):
    @pytest.fixture
    def lake(self, tmp_path: Path) -> LakeStorage:
        return ToyStorage(str(tmp_path))

    def foreign_commit(self, lake: LakeStorage, table: TableInfo) -> None:
        commit(lake, table, operation="replace")

    def foreign_rewrite(self, lake: LakeStorage, table: TableInfo) -> None:
        log, files = parts(lake, table)
        there, new = files.at(log.load()), []
        for file in there.files:
            (rows,) = there.read([file], files.schema(log.load()))
            new += [write(log, rows, file.bucket)] if rows.num_rows else []
        commit(lake, table, operation="replace", files=tuple(new))

    def foreign_insert(self, lake: LakeStorage, table: TableInfo, rows: Sequence[Row]) -> None:
        log, files = parts(lake, table)
        full = [{**r, "__timestamp": 0, "__bucket": 0} for r in rows]
        new = write(log, pa.Table.from_pylist(full, schema=files.schema(log.load())))
        commit(lake, table, operation="append", files=(*log.load().now.files, new))

    def foreign_expire(self, lake: LakeStorage, table: TableInfo) -> None:
        log, _ = parts(lake, table)
        ground = log.load()
        others = {s.snapshot_id for s in log.newest_first(ground)} - log.protected(ground)
        assert log.forget(ground, others)
        for path in (*log.only_in(log.load(), []), *log.clean(log.load(), [])):
            STORAGE.delete(path)

    def roll_back(self, lake: LakeStorage, table: TableInfo, snapshot_id: SnapshotId) -> None:
        log, _ = parts(lake, table)
        old = log.read(int(snapshot_id))
        commit(lake, table, operation="restore", files=old.files, restored=old.number)


def parts(lake: LakeStorage, table: TableInfo) -> tuple[ToyLog, ToyFiles]:
    assert isinstance(lake, ToyStorage)
    opened = lake.open_table(table)
    assert isinstance(opened.log, ToyLog)
    assert isinstance(opened.files, ToyFiles)
    return opened.log, opened.files


def commit(lake: LakeStorage, table: TableInfo, **change: Any) -> None:
    log, _ = parts(lake, table)
    now = log.load().now
    assert log.next(now, snapshot=now.number + 1, **change)


def write(log: ToyLog, rows: pa.Table, bucket: Bucket | None = B0) -> LakeFile:
    path, offsets = f"{log.folder}/data/theirs-{uuid.uuid4().hex}.parquet", rows.column("__offset").to_pylist()
    with STORAGE.open_output(path) as out:
        pq.write_table(rows, out)
    bounds, size = OffsetRange(min(offsets), max(offsets) + 1), Path(path).stat().st_size
    return LakeFile(path=path, bucket=bucket, record_count=rows.num_rows, size_bytes=size, offsets=bounds)
