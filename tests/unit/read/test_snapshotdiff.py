# SPDX-License-Identifier: Apache-2.0
"""Changes between two snapshots, from the rows that went and the rows that came; columns of any kind among them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from lakeward.changelog.keyed import pair_rows, rows_not_in
from lakeward.lake.lance.storage import LanceLakeStorage
from lakeward.model import OFFSET, TIMESTAMP, TIMESTAMP_COLUMN_TYPE
from lakeward.read.snapshotdiff import SnapshotPair, diff_rows
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from tests.contract.test_lance_lake import foreign


def rows(*numbers: tuple[int, int], tags: list[str]) -> pa.Table:
    """(id, offset) each."""
    at = datetime.fromtimestamp(1, UTC)
    return pa.table(
        {
            "id": pa.array([i for i, _ in numbers], pa.int64()),
            "tags": pa.array([tags for _ in numbers], pa.list_(pa.string())),
            OFFSET: pa.array([o for _, o in numbers], pa.int64()),
            TIMESTAMP: pa.array([at for _ in numbers], TIMESTAMP_COLUMN_TYPE),
        }
    )


def test_rows_with_lists_are_matched_by_their_key() -> None:
    gone, came = rows((1, 0), (2, 1), (3, 2), tags=["old"]), rows((2, 11), (4, 12), tags=["new"])
    told = diff_rows(gone, came, ["id"], 20, 5_000).to_pylist()
    assert [(r["__change_type"], r["id"], r["tags"], r[OFFSET]) for r in told] == [
        ("update_before", 2, ["old"], 10),
        ("update_after", 2, ["new"], 11),
        ("insert", 4, ["new"], 12),
        ("delete", 1, ["old"], 19),
        ("delete", 3, ["old"], 19),
    ]


def test_keys_of_two_types_are_the_same_and_order_stays() -> None:
    left = pa.table({"id": pa.array([5, 3, 9, 3], pa.int32()), "m": [{"a": 1}] * 4})
    right = pa.table({"id": pa.array([3, 7], pa.int64())})
    assert rows_not_in(left, right, ["id"]).tolist() == [0, 2]
    pairs = sorted(zip(*(n.tolist() for n in pair_rows(left, right, ["id"])), strict=True))
    assert pairs == [(1, 0), (3, 0)]


def test_files_that_another_engine_merged_from_several_buckets_hide_no_row(tmp_path: Path) -> None:
    lake = LanceLakeStorage(str(tmp_path))
    log = LakeSuite().make_log(lake, primary_key=("id",))
    log.upsert(B0, row(1), row(2))
    log.upsert(B1, row(11), row(12))
    base = LakeRound.plan(lake, log).run()
    log.upsert(B0, row(2, "new"), row(3))
    log.delete(B1, row(12))
    head = LakeRound.plan(lake, log).run()
    reader = lake.open_reader(log.table)
    pair = SnapshotPair(reader, log.table, base, head)
    expected = [pair.changes(bucket, ["id", "name"], ["id"]) for bucket in (B0, B1)]
    foreign(lake, log.table).compact()
    merged = reader.load_snapshot()
    assert merged is not None
    assert merged.snapshot_id != head.snapshot_id
    again = SnapshotPair(reader, log.table, base, replace(head, snapshot_id=merged.snapshot_id))
    for bucket, changes in zip((B0, B1), expected, strict=True):
        assert changes is not None
        told = again.changes(bucket, ["id", "name"], ["id"])
        assert told is not None
        assert told.to_pylist() == changes.to_pylist()
