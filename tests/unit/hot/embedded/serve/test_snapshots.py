# SPDX-License-Identifier: Apache-2.0
"""KV snapshots of many buckets in one call, and with a server that knows one at a time."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.remote.storeclient import EmbeddedStoreClient
from lakeward.hot.embedded.serve import actions
from lakeward.model import Bucket, to_arrow_schema
from lakeward.protocol.flight import MOST_SNAPSHOTS, Act, ActionRequest
from tests.unit.hot.embedded.serve.standin import Served, serving

BUCKETS = tuple(Bucket("", number) for number in range(2 * MOST_SNAPSHOTS + 2))


def store_of(served: Served) -> EmbeddedStoreClient:
    table = served.table("d.t", primary_key=("id",), buckets=len(BUCKETS))
    table.upsert([{"id": n, "name": str(n)} for n in range(40)])
    return EmbeddedStoreClient(table.client.server)


@pytest.mark.parametrize("is_old", [False, True])
def test_many_are_taken_with_few_calls(is_old: bool) -> None:
    with serving() as served:
        store, served.store.is_old = store_of(served), is_old
        table = served.store.load_tables()[0]
        written = {b for b, bounds in served.store.bounds(table).items() if bounds.end}
        taken = store.take_snapshots(table, BUCKETS, "round")
        assert served.store.asked_at_once == [MOST_SNAPSHOTS, *([] if is_old else [MOST_SNAPSHOTS, 2])]
        assert set(taken) == written
        assert {b: store.take_snapshot(table, b, "round") for b in written} == taken, "the holder's own again"
        store.release_snapshots(table, "round")
        store.close()


def test_a_call_for_too_many_is_refused() -> None:
    with serving() as served:
        store_of(served).close()
        request = ActionRequest(table=served.store.load_tables()[0].path, buckets=BUCKETS, holder="round")
        with pytest.raises(InvalidRequest, match="too many"):
            actions.answer(served.store, Act.TAKE_SNAPSHOTS, request)


def test_rows_of_one_group_are_in_all_snapshots_or_in_none() -> None:
    with serving() as served:
        served.table("d.t", primary_key=("id",), buckets=2)
        table, store = served.store.load_tables()[0], served.store
        taken: list[int] = []

        def take() -> None:
            snapshots = store.take_snapshots(table, BUCKETS[:2], "reader")
            taken.append(sum(snapshot.log_offset for snapshot in snapshots.values()))

        reader = threading.Thread(target=take)
        with store.together:
            reader.start()
            reader.join(0.3)
            row = pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}], schema=to_arrow_schema(table.schema))
            for bucket in BUCKETS[:2]:
                store.upsert(table, bucket, row)
        reader.join()
        assert taken == [2]
