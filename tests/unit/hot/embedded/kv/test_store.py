# SPDX-License-Identifier: Apache-2.0
"""PK tables in a whole store: durability, partitions, schema changes, a full disk, snapshots across restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakeward.errors import DiskFull, InvalidRequest, InvalidRows, SchemaChanged
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, ChangeType, Column, TableInfo, parse_type
from tests.unit.hot.embedded.yard import B0, Yard


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows))


def changes(store: EmbeddedStore, table: TableInfo, bucket: Bucket = B0) -> list[tuple[str, int | None, Any]]:
    end = store.freeze(table)[bucket].end
    read = [r for b in store.read_log(table, bucket, 0, end) for r in b.to_pylist()]
    return [(ChangeType(r["__change_type"]).short, r["__prev_offset"], r["id"]) for r in read]


def found(store: EmbeddedStore, table: TableInfo, *ids: int) -> dict[int, Any]:
    return {r["id"]: r["text"] for r in store.lookup(table, B0, batch(*({"id": i} for i in ids))).to_pylist()}


def make(yard: Yard, store: EmbeddedStore, **properties: str) -> TableInfo:
    spelled = {k.replace("__", "."): v for k, v in properties.items()}
    table = yard.table(primary_key=("id",), properties=spelled)
    store.create_table(table)
    return table


@pytest.mark.parametrize(("fsync", "synced"), [("always", 1), ("interval", 0)])
def test_a_put_is_acknowledged_as_the_fsync_policy_says(
    yard: Yard, store: EmbeddedStore, fsync: str, synced: int
) -> None:
    table = make(yard, store, table__log__fsync=fsync)
    store.upsert(table, B0, batch({"id": 1, "text": "a"}))
    assert store.bounds(table)[B0].end == synced
    store.delete(table, B0, batch({"id": 1}))
    assert store.bounds(table)[B0].end == 2 * synced
    assert store.freeze(table)[B0].end == 2


def test_a_kill_loses_nothing_and_a_retry_lands_once(yard: Yard, store: EmbeddedStore) -> None:
    table = make(yard, store)
    store.upsert(table, B0, batch({"id": 1, "text": "a"}, {"id": 2, "text": "b"}), writer=WriterSequence(8, 0))
    first = store.upsert(table, B0, batch({"id": 1, "text": "c"}), writer=WriterSequence(8, 1))
    again = yard.open(yard.crash(store))
    assert found(again, table, 1, 2) == {1: "c", 2: "b"}
    retried = again.upsert(table, B0, batch({"id": 1, "text": "c"}), writer=WriterSequence(8, 1))
    assert (retried.start, retried.stop, retried.duplicate) == (first.start, first.stop, True)
    assert changes(again, table) == [("+I", None, 1), ("+I", None, 2), ("-U", 0, 1), ("+U", 0, 1)]


def test_partitions_have_keys_of_their_own(yard: Yard, store: EmbeddedStore) -> None:
    columns = {"id": "BIGINT NOT NULL", "day": "STRING NOT NULL", "text": "STRING"}
    table = yard.table(columns=columns, primary_key=("day", "id"), partition_keys=("day",))
    store.create_table(table)
    for day in ("mon", "tue"):
        store.upsert(table, Bucket(day, 0), batch({"id": 1, "day": day, "text": day}))
    texts = [
        store.lookup(table, Bucket(d, 0), batch({"id": 1, "day": d})).column("text").to_pylist() for d in ("mon", "tue")
    ]
    assert texts == [["mon"], ["tue"]]
    store.drop_partition(table, "mon")
    store.upsert(table, Bucket("mon", 0), batch({"id": 1, "day": "mon", "text": "new"}))
    assert store.lookup(table, Bucket("mon", 0), batch({"id": 1, "day": "mon"})).column("__offset").to_pylist() == [1]


def test_columns_that_are_added_later(yard: Yard, store: EmbeddedStore) -> None:
    table = make(yard, store)
    store.upsert(table, B0, batch({"id": 1, "text": "a"}, {"id": 2, "text": "b"}))
    schema = table.schema.with_added([Column(name="more", type=parse_type("ARRAY<INT NOT NULL>"))])
    altered = table.with_descriptor(replace(table.descriptor, schema=schema))
    store.alter_table(altered)
    store.upsert(altered, B0, batch({"id": 1, "more": [1, 2]}), ["more"])
    with pytest.raises(InvalidRows, match="null inside"):
        store.upsert(altered, B0, batch({"id": 2, "more": [1]}, {"id": 1, "more": [None]}), ["more"])
    again = yard.open(yard.crash(store))
    rows = again.lookup(altered, B0, batch({"id": 1}, {"id": 2})).to_pylist()
    assert [(r["text"], r["more"], r["__offset"]) for r in rows] == [("a", [1, 2], 3), ("b", None, 1)]


def test_a_full_disk_refuses_puts_and_heals(yard: Yard) -> None:
    free = 1 << 40
    yard.free = lambda _: free
    yard.settings["server.disk.reserve"] = "1mb"
    store = yard.open()
    table = make(yard, store)
    store.upsert(table, B0, batch({"id": 1, "text": "a"}), writer=WriterSequence(8, 0))
    free = 1 << 20
    with pytest.raises(DiskFull):
        store.upsert(table, B0, batch({"id": 1, "text": "b" * (1 << 20)}), writer=WriterSequence(8, 1))
    assert found(store, table, 1) == {1: "a"}
    free = 1 << 40
    store.upsert(table, B0, batch({"id": 1, "text": "c"}), writer=WriterSequence(8, 1))
    assert found(store, table, 1) == {1: "c"}


def test_snapshots_are_leased_across_a_restart(yard: Yard, store: EmbeddedStore) -> None:
    table = make(yard, store)
    assert store.take_snapshot(table, B0, "round") is None
    store.upsert(table, B0, batch({"id": 1, "text": "a"}))
    snapshot = store.take_snapshot(table, B0, "round")
    assert snapshot is not None
    store.upsert(table, B0, batch({"id": 1, "text": "b"}))
    again = yard.open(yard.crash(store))
    assert again.take_snapshot(table, B0, "round") == snapshot
    assert [r["text"] for b in again.read_snapshot(table, snapshot, ["text"]) for r in b.to_pylist()] == ["a"]
    again.release_snapshots(table, "round")
    again.release_snapshots(table, "round")


def test_keys_and_appends_do_not_mix(yard: Yard, store: EmbeddedStore) -> None:
    table, plain = make(yard, store), yard.table(name="plain")
    store.create_table(plain)
    with pytest.raises(InvalidRequest, match="primary key"):
        store.append(table, B0, batch({"id": 1, "text": "a"}))
    with pytest.raises(InvalidRequest, match="primary key"):
        store.upsert(plain, B0, batch({"id": 1, "text": "a"}))
    with pytest.raises(InvalidRows):
        store.delete(table, B0, batch({"text": "a"}))
    assert found(store, table, 1) == {}


def test_a_reader_that_has_not_seen_an_alter(yard: Yard, store: EmbeddedStore) -> None:
    table = make(yard, store)
    schema = table.schema.with_added([Column(name="more", type=parse_type("INT"))])
    altered = table.with_descriptor(replace(table.descriptor, schema=schema))
    store.upsert(table, B0, batch({"id": 1, "text": "a"}))
    store.alter_table(altered)
    store.upsert(altered, B0, batch({"id": 2, "text": "b", "more": 5}))
    assert store.lookup(table, B0, batch({"id": 2})).schema.names == ["id", "text", "__offset", "__timestamp"]
    snapshot = store.take_snapshot(table, B0, "round")
    assert snapshot is not None
    with pytest.raises(SchemaChanged):
        list(store.read_snapshot(table, snapshot))
    assert sorted(r["id"] for b in store.read_snapshot(altered, snapshot) for r in b.to_pylist()) == [1, 2]


def test_the_image_follows_the_servers_default(yard: Yard) -> None:
    yard.settings["table.changelog.image"] = "wal"
    store = yard.open()
    table = make(yard, store)
    for text in ("a", "b"):
        store.upsert(table, B0, batch({"id": 1, "text": text}))
    assert changes(store, table) == [("+I", None, 1), ("+U", 0, 1)]
