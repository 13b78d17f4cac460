# SPDX-License-Identifier: Apache-2.0
"""A PK bucket checked by key, from KV snapshots older and newer than the committed offset; what is wrong is named."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.model import Bucket, SnapshotId, TableInfo, to_arrow_schema
from lakeward.spi import KvSnapshot, LogBounds
from lakeward.verify.bykey import compare_by_key
from lakeward.verify.certificate import FindingKind
from lakeward.verify.task import BucketTask, Part
from tests.kit.scripted_store import ScriptedHotStore
from tests.unit.tiering.world import make_table

B0 = Bucket("", 0)
Row = dict[str, Any]


class KeyedStore(ScriptedHotStore):
    """As a Fluss cluster: no previous offsets, and KV snapshots of some moment or none."""

    has_prev_offset = False

    def __init__(self, snapshot_at: int | None) -> None:
        super().__init__()
        self._snapshot_at = snapshot_at

    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None:
        at = self._snapshot_at
        return None if at is None else KvSnapshot(bucket=bucket, snapshot_id="s", log_offset=at, has_offsets=False)


def filled(snapshot_at: int | None, changes: list[tuple[int, int | None]]) -> tuple[KeyedStore, TableInfo]:
    """`changes`: key and new value; None deletes it."""
    store, table = (
        KeyedStore(snapshot_at),
        make_table("shop STRING NOT NULL", "id BIGINT NOT NULL", "n INT", key=("shop", "id")),
    )
    store.create(table)
    for key, value in changes:
        row = {"shop": f"shop {key % 3}", "id": key, "n": value}
        if value is None:
            store.delete(table, B0, [row])
        else:
            store.write(table, B0, [row])
    return store, table


def lake_rows(store: KeyedStore, table: TableInfo, committed: int) -> list[Row]:
    return [row for _, _, row in store._stored(table.path).log.expected({B0: committed})]


def check(
    store: KeyedStore,
    table: TableInfo,
    committed: int,
    found: list[Row],
    *,
    start: int = 0,
    deep: bool = True,
    sample: float = 1.0,
) -> Part:
    bounds = LogBounds(start=start, end=store.freeze(table)[B0].end)
    task = BucketTask(
        table=table,
        bucket=B0,
        snapshot_id=SnapshotId("1"),
        committed=committed,
        expected=(),
        bounds=bounds,
        deep=deep,
        sample=sample,
    )
    return compare_by_key(task, store, [pa.RecordBatch.from_pylist(found, schema=to_arrow_schema(table.schema))])


@given(st.data())
def test_rows_live_at_the_committed_offset_hold_whenever_the_snapshot_was_taken(data: st.DataObject) -> None:
    changes = data.draw(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 3)), min_size=1, max_size=30))
    store, table = filled(None, changes)
    end = store.freeze(table)[B0].end
    cuts = [
        n
        for n in range(end + 1)
        if n in (0, end) or store._stored(table.path).log.batch(B0, n, n + 1)["__change_type"][0].as_py() != 3
    ]
    committed, at = data.draw(st.sampled_from(cuts)), data.draw(st.sampled_from([None, *cuts]))
    store._snapshot_at = at
    rows = lake_rows(store, table, committed)
    assert check(store, table, committed, rows) == Part(rows=len(rows), compared=len(rows))


@pytest.mark.parametrize("snapshot_at", [None, 3, 9])
def test_each_kind_of_damage_is_named_with_its_key(snapshot_at: int | None) -> None:
    store, table = filled(snapshot_at, [(1, 10), (2, 20), (3, 30), (2, 21), (1, None), (4, 40), (3, 31)])
    right = sorted(lake_rows(store, table, 6), key=lambda r: int(r["id"]))
    assert {r["id"]: r["n"] for r in right} == {2: 21, 3: 30}
    wrong = {
        FindingKind.MISSING: right[1:],
        FindingKind.DUPLICATE: [*right, right[0]],
        FindingKind.STRAY: [*right, {"shop": "shop 1", "id": 1, "n": 10}],
        FindingKind.ALTERED: [{**right[0], "n": -1}, *right[1:]],
    }
    for kind, rows in wrong.items():
        (finding,) = check(store, table, 6, rows).findings
        assert (finding.kind, finding.count) == (kind, 1)
        assert ("shop 1/1" if kind is FindingKind.STRAY else "shop 2/2") in finding.words


def test_a_sample_compares_its_share_of_the_values_and_every_key() -> None:
    store, table = filled(None, [(n, n) for n in range(1_000)])
    rows = lake_rows(store, table, 1_000)
    whole = check(store, table, 1_000, rows, sample=0.2)
    assert (whole.findings, whole.rows) == ((), 1_000)
    assert 150 <= whole.compared <= 250
    missing, *_ = check(store, table, 1_000, rows[1:], sample=0.2).findings
    assert missing.kind is FindingKind.MISSING
    (altered,) = check(store, table, 1_000, [{**r, "n": -1} for r in rows], sample=0.2).findings
    assert altered.count == whole.compared


def test_without_depth_only_keys_are_compared() -> None:
    store, table = filled(None, [(1, 10), (2, 20)])
    assert check(
        store, table, 2, [{"shop": "shop 1", "id": 1, "n": 99}, {"shop": "shop 2", "id": 2, "n": 98}], deep=False
    ) == Part(rows=2)


def test_what_cannot_be_told_is_said() -> None:
    store, table = filled(None, [(1, 10), (2, 20)])
    (words,) = check(store, table, 2, [], start=1).beyond
    assert "no KV snapshot" in words
