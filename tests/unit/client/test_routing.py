# SPDX-License-Identifier: Apache-2.0
"""Rows to buckets: every row goes to one, rows of a bucket keep their order, big tables become several batches."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.bucketing import assign_buckets
from lakeward.client.columns import parse_columns
from lakeward.client.routing import Router
from lakeward.errors import InvalidRows
from lakeward.model import Bucket, Schema, TableDescriptor, TableInfo, TablePath, new_table_id


def router(columns: str, **options: object) -> Router:
    descriptor = TableDescriptor(schema=Schema(columns=parse_columns(columns)), **options)  # type: ignore[arg-type]
    return Router(TableInfo(path=TablePath("d", "t"), table_id=new_table_id(), descriptor=descriptor))


@given(
    keys=st.lists(st.integers(-5, 5), min_size=1, max_size=60),
    days=st.lists(st.dates(), min_size=1, max_size=3),
    buckets=st.integers(1, 5),
)
def test_every_row_arrives_once_in_order(keys: list[int], days: list[object], buckets: int) -> None:
    made = router(
        "id BIGINT NOT NULL, day DATE, n INT", partition_keys=("day",), bucket_keys=("id",), bucket_count=buckets
    )
    rows = pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "day": pa.array([days[k % len(days)] for k in keys], pa.date32()),
            "n": pa.array(range(len(keys)), pa.int32()),
        }
    )
    numbers = assign_buckets(rows, made.table.descriptor).tolist() if buckets > 1 else [0] * len(keys)
    wanted: dict[Bucket, list[int]] = defaultdict(list)
    for n, (key, number) in enumerate(zip(keys, numbers, strict=True)):
        wanted[Bucket(str(days[key % len(days)]), number)].append(n)
    got: dict[Bucket, list[int]] = defaultdict(list)
    for bucket, batch in made.route(rows):
        got[bucket] += batch.column("n").to_pylist()
    assert got == wanted


def test_rows_without_a_key_take_turns() -> None:
    made = router("id BIGINT", bucket_count=3)
    buckets = [bucket.number for _ in range(6) for bucket, _ in made.route(pa.table({"id": [1, 2]}))]
    assert sorted(buckets[:3]) == [0, 1, 2]
    assert buckets[:3] == buckets[3:]


def test_big_tables_become_batches_under_the_limit() -> None:
    made = router("text STRING")
    rows = pa.table({"text": ["x" * 100] * 50 + ["y" * 900] * 3 + ["z" * 5_000]})
    batches = [batch for _, batch in made.route(rows, 1_000)]
    assert pa.Table.from_batches(batches).equals(rows.combine_chunks())
    assert all(b.nbytes <= 1_000 or b.num_rows == 1 for b in batches)
    assert list(made.route(rows.slice(0, 0))) == []


@pytest.mark.parametrize(
    ("values", "row"), [(["a", None], 1), (["a", "b", ""], 2), (["a/b"], 0), (["a", ".."], 1), (["a$b"], 0)]
)
def test_a_row_without_a_partition_is_refused_by_number(values: list[str | None], row: int) -> None:
    made = router("p STRING", partition_keys=("p",))
    rows = pa.table({"p": pa.array(values, pa.string())})
    for call in (lambda: made.check(rows), lambda: list(made.route(rows))):
        with pytest.raises(InvalidRows) as refused:
            call()
        assert (refused.value.row, refused.value.column) == (row, "p")
