# SPDX-License-Identifier: Apache-2.0
"""The hot store contract's logs: bounds, ranges cut at offsets, projection, gaps, schema changes."""

from __future__ import annotations

import pytest

from lakeward.errors import OffsetOutOfRange, SchemaChanged, TableNotFound
from lakeward.model import CHANGE_TYPE, OFFSET, TIMESTAMP, Bucket, ChangeType, Column, TablePath, parse_type
from lakeward.spi import HotStore
from lakeward_testing.hots.suite import B0, B1, COLUMNS, HotSuite, read, row


class LogContract(HotSuite):
    def test_a_table_is_found_by_its_path(self, store: HotStore) -> None:
        table = self.make_table(store)
        assert store.load_table(table.path) == table
        assert table.path in store.list_tables()
        with pytest.raises(TableNotFound):
            store.load_table(TablePath("contract", "nowhere"))

    def test_every_bucket_has_bounds_before_its_first_row(self, store: HotStore) -> None:
        bounds = store.freeze(self.make_table(store))
        assert {b: (x.start, x.end) for b, x in bounds.items()} == {B0: (0, 0), B1: (0, 0)}

    def test_bounds_follow_what_was_acknowledged(self, store: HotStore) -> None:
        table = self.make_table(store)
        self.write(store, table, B0, [row(1), row(2)])
        self.write(store, table, B1, [row(3)])
        first = store.freeze(table)
        assert (first[B0].start, first[B0].end, first[B1].end) == (0, 2, 1)
        assert first[B0].end_at_ms > 0
        self.write(store, table, B0, [row(4)])
        assert store.freeze(table)[B0].end == 3
        assert store.freeze(table)[B0].end_at_ms >= first[B0].end_at_ms

    def test_rows_come_back_with_their_system_columns(self, store: HotStore) -> None:
        table = self.make_table(store)
        rows = [row(1), {"id": 2, "name": None, "score": None}, row(3, "")]
        self.write(store, table, B0, rows)
        found_rows = read(store, table, B0, 0, 3)
        assert [{n: r[n] for n in COLUMNS} for r in found_rows] == rows
        assert [r[OFFSET] for r in found_rows] == [0, 1, 2]
        assert {r[CHANGE_TYPE] for r in found_rows} == {ChangeType.APPEND}
        batch = next(iter(store.read_log(table, B0, 0, 3)))
        assert batch.schema.names[:6] == [*COLUMNS, OFFSET, TIMESTAMP, CHANGE_TYPE]
        assert str(batch.schema.field(TIMESTAMP).type) == "timestamp[ms, tz=UTC]"

    def test_ranges_are_cut_at_offsets_not_at_batches(self, store: HotStore) -> None:
        table = self.make_table(store)
        for start in (0, 3, 6):
            self.write(store, table, B0, [row(start + i) for i in range(3)])
        for start in range(10):
            for stop in range(start, 10):
                assert [r["id"] for r in read(store, table, B0, start, stop)] == list(range(start, stop))

    def test_a_range_can_be_read_again(self, store: HotStore) -> None:
        table = self.make_table(store)
        self.write(store, table, B0, [row(1), row(2)])
        once = read(store, table, B0, 0, 2)
        self.write(store, table, B0, [row(3)])
        assert read(store, table, B0, 0, 2) == once

    def test_buckets_do_not_mix(self, store: HotStore) -> None:
        table, other = self.make_table(store), self.make_table(store, "other")
        self.write(store, table, B0, [row(1)])
        self.write(store, table, B1, [row(2)])
        self.write(store, other, B0, [row(3)])
        assert [r["id"] for r in read(store, table, B1, 0, 1)] == [2]
        assert [r["id"] for r in read(store, other, B0, 0, 1)] == [3]

    @pytest.mark.parametrize("columns", [["score", "id"], ["name"], []], ids=lambda c: "+".join(c) or "none")
    def test_columns_are_projected_in_the_order_asked(self, store: HotStore, columns: list[str]) -> None:
        table = self.make_table(store)
        self.write(store, table, B0, [row(1), row(2)])
        (batch,) = store.read_log(table, B0, 0, 2, columns)
        assert batch.schema.names[: len(columns) + 3] == [*columns, OFFSET, TIMESTAMP, CHANGE_TYPE]
        assert batch.num_rows == 2
        assert all(batch.column(name).to_pylist() == [row(1)[name], row(2)[name]] for name in columns)

    def test_an_offset_outside_the_log_is_refused(self, store: HotStore) -> None:
        table = self.make_table(store)
        self.write(store, table, B0, [row(1)])
        for start, stop in ((0, 2), (5, 6)):
            with pytest.raises(OffsetOutOfRange) as refused:
                read(store, table, B0, start, stop)
            assert (refused.value.start, refused.value.end) == (0, 1)
        assert read(store, table, B0, 1, 1) == []

    def test_an_offset_is_found_by_its_time(self, store: HotStore) -> None:
        table = self.make_table(store)
        for number in range(4):
            self.write(store, table, B0, [row(number)])
        times = [round(r[TIMESTAMP].timestamp() * 1000) for r in read(store, table, B0, 0, 4)]
        for at in times:
            first = store.offset_at(table, B0, at)
            assert times[first] >= at
            assert first == 0 or times[first - 1] < at
        assert store.offset_at(table, B0, 0) == 0
        assert store.offset_at(table, B0, times[-1] + 3_600_000) == 4

    def test_offsets_may_have_gaps(self, store: HotStore) -> None:
        table = self.make_table(store)
        self.write(store, table, B0, [row(1)])
        self.make_gap(store, table, B0, 10)
        self.write(store, table, B0, [row(2)])
        assert store.freeze(table)[B0].end == 11
        assert [(r[OFFSET], r["id"]) for r in read(store, table, B0, 0, 11)] == [(0, 1), (10, 2)]
        assert read(store, table, B0, 3, 9) == []
        assert [r["id"] for r in read(store, table, B0, 5, 11)] == [2]

    def test_partitions_have_logs_of_their_own(self, store: HotStore) -> None:
        table = self.make_table(store, columns={**COLUMNS, "region": "STRING NOT NULL"}, partition_keys=("region",))
        eu, us = Bucket("eu", 0), Bucket("us", 0)
        self.write(store, table, eu, [row(1, region="eu")])
        self.write(store, table, us, [row(2, region="us"), row(3, region="us")])
        bounds = store.freeze(table)
        assert {b: bounds[b].end for b in (eu, us)} == {eu: 1, us: 2}
        assert [r["id"] for r in read(store, table, us, 0, 2)] == [2, 3]

    def test_a_batch_newer_than_the_planned_schema_is_refused(self, store: HotStore) -> None:
        table = self.make_table(store)
        self.write(store, table, B0, [row(1)])
        grown = self.add_column(store, table, Column(name="later", type=parse_type("INT")))
        self.write(store, grown, B0, [row(2, later=7)])
        assert [r["later"] for r in read(store, grown, B0, 0, 2)] == [None, 7]
        assert [r["id"] for r in read(store, table, B0, 0, 1)] == [1]
        with pytest.raises(SchemaChanged) as refused:
            read(store, table, B0, 0, 2)
        assert refused.value.retryable

    def test_closing_twice_is_harmless(self, store: HotStore) -> None:
        store.close()
        store.close()
