# SPDX-License-Identifier: Apache-2.0
"""KV snapshots: what they hold, how long they are kept, what survives a restart."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.errors import InvalidRequest, KvFailed, SchemaChanged, SnapshotGone
from lakeward.hot.embedded.kv.kvoptions import KvOptions
from lakeward.model import Column, StringType
from lakeward_testing.faults import Faults


def row(k: int, v: int = 0) -> dict[str, Any]:
    return {"k": k, "s": f"s{v}", "v": v}


def test_a_snapshot_stands_for_its_offset_while_puts_go_on(table: Any) -> None:
    table.upsert(row(1, 1), row(2, 1))
    first_at = table.clock.now_ms()
    table.clock.advance(5)
    table.upsert(row(1, 2))
    snapshot = table.kv.take_snapshot("round")
    table.upsert(row(1, 3), row(9, 3))
    table.delete(2)
    rows = {
        r["k"]: (r["v"], r["__offset"], int(r["__timestamp"].timestamp() * 1000))
        for r in table.snapshot_rows(snapshot.snapshot_id)
    }
    assert rows == {1: (2, 3, first_at + 5000), 2: (1, 1, first_at)}
    assert (snapshot.log_offset, snapshot.rows) == (4, 2)
    assert table.log.synced_end == 4


def test_columns_are_projected_and_batches_bounded(table: Any) -> None:
    table.kv.upsert(table.batch([row(k) for k in range(20_000)]))
    snapshot = table.kv.take_snapshot("round")
    batches = list(table.kv.read_snapshot(snapshot.snapshot_id, ["v", "k"]))
    assert {tuple(b.schema.names) for b in batches} == {("v", "k", "__offset", "__timestamp")}
    assert max(b.num_rows for b in batches) <= 8192
    assert sorted(k for b in batches for k in b.column("k").to_pylist()) == list(range(20_000))


def test_a_bucket_without_puts_has_no_snapshot(table: Any) -> None:
    assert table.kv.take_snapshot("round") is None
    table.upsert(row(1))
    table.delete(1)
    snapshot = table.kv.take_snapshot("round")
    assert (snapshot.rows, table.snapshot_rows(snapshot.snapshot_id)) == (0, [])


def test_a_holder_that_asks_again_gets_the_same_one(table: Any) -> None:
    table.upsert(row(1))
    first = table.kv.take_snapshot("round")
    table.upsert(row(2))
    assert table.kv.take_snapshot("round") == first
    assert table.kv.take_snapshot("other").log_offset == 2


def test_leases_keep_snapshots_and_the_log_below_them(table: Any) -> None:
    table.options = KvOptions(snapshots_retained=1, lease_s=60)
    table.reopen()
    taken = []
    for k in range(3):
        table.upsert(row(k))
        taken.append(table.kv.take_snapshot(f"round-{k}"))
    assert [s.log_offset for s in table.kv.snapshots.all()] == [1, 2, 3]
    assert table.kv.needed_from() == 1
    table.kv.snapshots.release("round-0")
    assert table.kv.needed_from() == 2
    with pytest.raises(SnapshotGone):
        table.snapshot_rows(taken[0].snapshot_id)
    table.clock.advance(61)
    table.kv.tick()
    assert [s.log_offset for s in table.kv.snapshots.all()] == [3]
    table.kv.snapshots.release("never held one")


def test_snapshots_and_leases_survive_a_restart(table: Any) -> None:
    table.options = KvOptions(snapshots_retained=1, lease_s=60)
    table.reopen()
    table.upsert(row(1))
    held = table.kv.take_snapshot("round")
    table.upsert(row(2))
    table.kv.take_snapshot("other")
    table.clock.advance(59)
    table.crash()
    table.clock.advance(59)
    table.kv.tick()
    assert len(table.snapshot_rows(held.snapshot_id)) == 1
    assert table.kv.take_snapshot("round") == held
    table.clock.advance(61)
    table.kv.tick()
    assert [s.log_offset for s in table.kv.snapshots.all()] == [2]


def test_a_snapshot_is_taken_when_it_is_due_and_there_is_something_new(table: Any) -> None:
    table.options = KvOptions(snapshot_interval_s=10)
    table.reopen()
    table.upsert(row(1))
    table.kv.tick()
    assert table.kv.snapshots.all() == []
    for _ in range(2):
        table.clock.advance(11)
        table.kv.tick()
    assert [s.log_offset for s in table.kv.snapshots.all()] == [1]


def test_a_failed_checkpoint_leaves_no_half_snapshot(table: Any) -> None:
    table.upsert(row(1))
    with Faults() as faults:
        faults.arm("kv.checkpoint", error=lambda: OSError("no links here"))
        with pytest.raises(KvFailed):
            table.kv.take_snapshot("round")
    assert [p.name for p in (table.folder / "snapshots").iterdir()] == []
    (table.folder / "snapshots" / ".tmp-left-by-a-kill").mkdir()
    table.reopen()
    assert [p.name for p in (table.folder / "snapshots").iterdir()] == []
    assert table.kv.take_snapshot("round").log_offset == 1


def test_a_read_under_way_survives_the_removal_of_its_snapshot(table: Any) -> None:
    table.kv.upsert(table.batch([row(k) for k in range(20_000)]))
    snapshot = table.kv.take_snapshot("round")
    batches = table.kv.read_snapshot(snapshot.snapshot_id)
    first = next(batches).num_rows
    table.kv.snapshots.release("round")
    table.kv.snapshots.drop_above(0)
    assert first + sum(b.num_rows for b in batches) == 20_000


def test_a_reader_of_an_older_schema_is_told_instead_of_losing_values(table: Any) -> None:
    table.upsert(row(1, 1))
    older = table.schemas[1]
    table.add_columns(Column(name="w", type=StringType()))
    before = table.kv.take_snapshot("before")
    assert [b.schema.names for b in table.kv.read_snapshot(before.snapshot_id, planned=older)] == [
        ["k", "s", "v", "__offset", "__timestamp"]
    ]
    table.upsert({**row(2, 1), "w": "new"})
    after = table.kv.take_snapshot("after")
    assert [r["w"] for r in table.snapshot_rows(after.snapshot_id)] == [None, "new"]
    with pytest.raises(SchemaChanged) as caught:
        list(table.kv.read_snapshot(after.snapshot_id, ["k"], planned=older))
    assert (caught.value.offset, caught.value.batch_schema, caught.value.planned_schema) == (1, 2, 1)


def test_unknown_columns_are_refused(table: Any) -> None:
    table.upsert(row(1))
    with pytest.raises(InvalidRequest, match="zz"):
        table.kv.lookup(table.batch([{"k": 1}]), ["zz"])


def test_two_readers_of_one_snapshot(table: Any) -> None:
    table.kv.upsert(table.batch([row(k) for k in range(20_000)]))
    snapshot = table.kv.take_snapshot("round")
    readers = [table.kv.read_snapshot(snapshot.snapshot_id, ["k"]) for _ in range(2)]
    assert [a.equals(b) for a, b in zip(*readers, strict=True)] == [True] * 3
