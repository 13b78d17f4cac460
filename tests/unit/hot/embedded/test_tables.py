# SPDX-License-Identifier: Apache-2.0
"""Tables and their metadata: create, alter, drop, pause, what survives a restart."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from lakeward.errors import (
    InvalidAlter,
    InvalidOptionValue,
    InvalidRequest,
    SchemaChanged,
    ServerUnavailable,
    TableAlreadyExists,
    TableNotFound,
    WritesPaused,
)
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, Column, OffsetMap, Schema, TableInfo, parse_type
from lakeward.spi import Waiting
from lakeward_testing.faults import Faults
from lakeward_testing.waiting import wait_until
from tests.unit.hot.embedded.yard import B0, Yard, read, rows


def grown(table: TableInfo, name: str = "extra", kind: str = "INT") -> TableInfo:
    schema = table.schema.with_added([Column(name=name, type=parse_type(kind))])
    return table.with_descriptor(replace(table.descriptor, schema=schema))


def test_tables_survive_a_restart_and_a_kill(yard: Yard, store: EmbeddedStore) -> None:
    tables = [yard.table(name=n) for n in ("b", "a")]
    for table in tables:
        store.create_table(table)
    again = yard.open(yard.crash(store))
    assert again.load_tables() == [tables[1], tables[0]]
    assert again.load_table(tables[0].path) == tables[0]
    with pytest.raises(TableAlreadyExists):
        again.create_table(yard.table(name="a"))


def test_a_dropped_table_is_gone_with_its_files_and_its_name_free(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1))
    store.drop_table(table.path)
    assert not list((yard.folder / "tables").iterdir())
    for call in (
        lambda: store.load_table(table.path),
        lambda: store.append(table, B0, rows(1)),
        lambda: store.freeze(table),
    ):
        with pytest.raises(TableNotFound):
            call()
    store.create_table(yard.table())
    with pytest.raises(TableNotFound):
        store.append(table, B0, rows(1))


def test_a_drop_cut_off_is_completed_at_the_next_start(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1))
    with Faults() as faults:
        faults.arm("hotlog.before-drop-table")
        store.drop_table(table.path)
        crashed = yard.crash(store)
    assert list((crashed / "tables").iterdir())
    again = yard.open(crashed)
    assert again.list_tables() == []
    assert not list((crashed / "tables").iterdir())


def test_upkeep_beside_a_drop_removes_no_file_that_is_being_closed(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(properties={"table.log.fsync": "never"})
    store.create_table(table)
    store.append(table, B0, rows(1))
    with Faults() as faults, ThreadPoolExecutor(2) as pool:
        closing = faults.arm("hotlog.before-fsync", "pause")
        dropped = pool.submit(store.drop_table, table.path)
        wait_until(lambda: dropped.done() or closing.is_reached())
        store.upkeep.finish_drops()
        closing.release()
        dropped.result()
    assert (store.list_tables(), store.upkeep.failures) == ([], {})
    assert not list((yard.folder / "tables").iterdir())


def test_a_drop_does_not_wait_for_the_remote_tier(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    for n in range(40):
        store.append(table, B0, rows(n))
    store.upkeep.upload()
    with Faults() as faults:
        faults.arm(
            "hotlog.before-drop-table", error=lambda: ServerUnavailable(address="remote log", reason="away"), times=None
        )
        store.drop_table(table.path)
        assert len(store.upkeep.failures) == 1
    store.create_table(yard.table())
    store.upkeep.upload()
    assert store.upkeep.failures == {}
    assert not list((yard.folder / "remote").rglob("*.log"))


def test_added_columns_read_as_nulls_in_old_batches(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1))
    new = grown(table)
    store.alter_table(new)
    store.append(new, B0, rows(2).append_column("extra", pa.array([5], pa.int32())))
    store.append(table, B0, rows(3))
    store.close()
    store = yard.open()
    found = pa.Table.from_batches(store.read_log(new, B0, 0, 3)).to_pydict()
    assert (found["id"], found["extra"]) == ([1, 2, 3], [None, 5, None])
    assert [b["extra"].to_pylist() for b in store.read_log(new, B0, 0, 3, ["extra"])] == [[None], [5], [None]]


def test_a_batch_newer_than_the_readers_schema_says_so(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1))
    store.alter_table(grown(table))
    assert len(list(store.read_log(table, B0, 0, 1))) == 1
    store.append(grown(table), B0, rows(2))
    with pytest.raises(SchemaChanged) as caught:
        list(store.read_log(table, B0, 0, 2))
    assert (caught.value.offset, caught.value.batch_schema, caught.value.planned_schema) == (1, 2, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: grown(t, kind="INT NOT NULL"), "make it nullable"),
        (lambda t: _with_schema(t, t.schema.columns[:1], 2), "no id is given away twice"),
        (lambda t: _with_schema(t, tuple(reversed(t.schema.columns)), 1), "2 is due"),
        (lambda t: _with_schema(grown(t), grown(t).schema.columns, 7), "2 is due"),
        (lambda t: t.with_descriptor(replace(t.descriptor, bucket_count=3)), "fixed"),
        (
            lambda t: t.with_descriptor(replace(t.descriptor, properties={"table.log.arrow.compression.type": "zstd"})),
            "fixed",
        ),
    ],
)
def test_what_cannot_be_altered_is_refused(yard: Yard, store: EmbeddedStore, change: object, reason: str) -> None:
    table = yard.table()
    store.create_table(table)
    with pytest.raises(InvalidAlter, match=reason):
        store.alter_table(change(table))  # type: ignore[operator]
    assert store.load_table(table.path) == table


def test_properties_change_at_once(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1))
    store.alter_table(table.with_descriptor(replace(table.descriptor, properties={"table.log.fsync": "never"})))
    store.append(table, B0, rows(2))
    assert store.bounds(table)[B0].end == 1
    with pytest.raises(InvalidOptionValue):
        store.alter_table(table.with_descriptor(replace(table.descriptor, properties={"table.log.fsync": "often"})))
    with pytest.raises(InvalidOptionValue):
        store.create_table(yard.table(name="wrong", properties={"table.log.ttl": "soon"}))
    assert len(store.list_tables()) == 1


def test_paused_writes_stay_paused_across_a_restart(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1))
    store.pause_writes(table, "the lake has not answered yet")
    store.close()
    store = yard.open()
    with pytest.raises(WritesPaused, match="not answered"):
        store.append(table, B0, rows(2))
    assert read(store, table) == [(0, 1)]
    store.pause_writes(table, None)
    store.append(table, B0, rows(2))


def test_buckets_that_cannot_be_are_refused(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(buckets=2)
    store.create_table(table)
    for bucket in (Bucket("", 2), Bucket("day", 0)):
        with pytest.raises(InvalidRequest):
            store.append(table, bucket, rows(1))
        with pytest.raises(InvalidRequest):
            store.read_log(table, bucket, 0, 0)
    assert list(store.freeze(table)) == [Bucket("", 0), Bucket("", 1)]
    with pytest.raises(InvalidRequest, match="no primary key"):
        store.upsert(table, B0, rows(1))
    keyed = yard.table(name="keyed", primary_key=("id",))
    store.create_table(keyed)
    with pytest.raises(InvalidRequest, match="use upsert"):
        store.append(keyed, B0, rows(1))


def test_waiting_counts_what_the_lake_lacks(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(buckets=2, properties={"table.log.fsync": "never"})
    store.create_table(table)
    assert store.waiting(table, OffsetMap()) == Waiting()
    begun = yard.clock.now_ms()
    for n in range(4):
        store.append(table, B0, rows(n, n))
        yard.clock.advance(1)
    store.append(table, Bucket("", 1), rows(1))
    found = store.waiting(table, OffsetMap({B0: 3}))
    assert (found.rows, found.oldest_at_ms) == (6, begun + 1000)
    assert found.bytes > 0
    later = store.waiting(table, OffsetMap({B0: 8}))
    assert (later.rows, later.oldest_at_ms) == (1, begun + 4000)
    assert store.waiting(table, OffsetMap({B0: 8, Bucket("", 1): 1})).oldest_at_ms is None


def _with_schema(table: TableInfo, columns: tuple[Column, ...], schema_id: int) -> TableInfo:
    return table.with_descriptor(replace(table.descriptor, schema=Schema(columns=columns, schema_id=schema_id)))


def test_sizes_tell_how_long_a_log_is_kept_by_the_table_or_by_the_server(yard: Yard) -> None:
    yard.settings["table.log.ttl"] = "1 h"
    store = yard.open()
    store.create_table(yard.table("servers"))
    store.create_table(yard.table("own", properties={"table.log.ttl": "1 d"}))
    kept = {str(s.path): s.ttl_ms for s in store.sizes()}
    assert kept == {"db.servers": 3_600_000, "db.own": 86_400_000}


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), KeyError("x"), OSError(5, "I/O error")])
def test_upkeep_goes_on_whatever_one_task_meets(yard: Yard, error: Exception) -> None:
    yard.settings["log.fsync.interval"] = "10ms"
    yard.settings["remote.log.task-interval-duration"] = "10ms"
    with Faults() as faults:
        failing = faults.arm("upkeep.task", error=lambda: error, times=4)
        store = yard.open(upkeep=True)
        wait_until(lambda: failing.hits > 12)
        assert [t.heartbeat().is_well for t in store.upkeep.threads] == [True, True]
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1))
    with Faults() as faults:
        faults.arm("hotlog.before-drop-table", error=lambda: error)
        store.drop_table(table.path)
        wait_until(lambda: not list((yard.folder / "tables").iterdir()), what="the next turn of upkeep")
