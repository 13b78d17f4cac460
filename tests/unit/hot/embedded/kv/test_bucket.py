# SPDX-License-Identifier: Apache-2.0
"""What puts leave in the changelog and in KV, case by case."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakeward.config import Config
from lakeward.errors import InvalidRows, OutOfSequence
from lakeward.hot.embedded.kv.kvoptions import KvOptions
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.model import Column, Int32Type, StringType

Row = dict[str, Any]


def row(k: int, s: str | None = None, v: int | None = None) -> Row:
    return {"k": k, "s": s, "v": v}


def test_insert_update_delete(table: Any) -> None:
    table.upsert(row(1, "a", 1), row(2, "b", 2))
    table.upsert(row(2, "b", 3), row(3, "c", 3))
    table.delete(1)
    assert table.records() == [
        (0, "+I", None, 1, "a", 1),
        (1, "+I", None, 2, "b", 2),
        (2, "-U", 1, 2, "b", 2),
        (3, "+U", 1, 2, "b", 3),
        (4, "+I", None, 3, "c", 3),
        (5, "-D", 0, 1, "a", 1),
    ]
    assert table.lookup(3, 1, 2) == [{**row(3, "c", 3), "__offset": 4}, {**row(2, "b", 3), "__offset": 3}]
    assert table.kv.rows == 2


def test_one_key_twice_in_one_batch_is_as_two_puts(table: Any) -> None:
    table.upsert(row(1, "a", 1), row(2, "x", 0), row(1, "a", 1), row(1, "b", 1), row(1, "a", 1))
    assert table.records() == [
        (0, "+I", None, 1, "a", 1),
        (1, "+I", None, 2, "x", 0),
        (2, "-U", 0, 1, "a", 1),
        (3, "+U", 0, 1, "b", 1),
        (4, "-U", 3, 1, "b", 1),
        (5, "+U", 3, 1, "a", 1),
    ]
    assert table.lookup(1) == [{**row(1, "a", 1), "__offset": 5}]
    assert table.kv.rows == 2


def test_wal_image_has_no_before_images_and_dense_offsets(make_table: Any) -> None:
    table = make_table(table__changelog__image="WAL")
    table.upsert(row(1, "a", 1))
    table.upsert(row(1, "b", 1), row(2, "c", 1), row(1, "d", 1))
    table.delete(1)
    assert table.records() == [
        (0, "+I", None, 1, "a", 1),
        (1, "+U", 0, 1, "b", 1),
        (2, "+I", None, 2, "c", 1),
        (3, "+U", 1, 1, "d", 1),
        (4, "-D", 3, 1, "d", 1),
    ]


def test_options_come_from_the_configuration_and_the_table(make_table: Any) -> None:
    settings = {"table.changelog.image": "wal", "kv.snapshot.interval": "30 s", "kv.snapshot.num-retained": 3}
    options = KvOptions.of(Config().with_arguments(settings))
    assert (options.snapshot_interval_s, options.snapshots_retained) == (30.0, 3)
    assert not options.has_before_images(make_table().info.descriptor)
    assert options.has_before_images(make_table(table__changelog__image="full").info.descriptor)


def test_an_upsert_that_changes_nothing_keeps_row_and_offset(table: Any) -> None:
    table.upsert(row(1, None, 1))
    appended = table.upsert(row(1, None, 1))
    assert (appended.start, appended.stop) == (1, 2)
    assert table.records() == [(0, "+I", None, 1, None, 1)]
    assert table.lookup(1) == [{**row(1, None, 1), "__offset": 0}]
    table.upsert(row(1, "", 1))
    assert table.records(2) == [(2, "-U", 0, 1, None, 1), (3, "+U", 0, 1, "", 1)]


def test_deletes_of_absent_keys_and_twice(table: Any) -> None:
    table.upsert(row(1, "a", 1))
    table.delete(7)
    table.delete(1, 7, 1)
    assert table.records(1) == [(2, "-D", 0, 1, "a", 1)]
    assert table.lookup(1, 7) == []
    assert table.kv.rows == 0


def test_a_key_comes_back_after_its_delete(table: Any) -> None:
    table.upsert(row(1, "a", 1))
    table.delete(1)
    table.upsert(row(1, "a", 1))
    assert table.records(2) == [(2, "+I", None, 1, "a", 1)]


def test_partial_update_keeps_the_other_columns(table: Any) -> None:
    table.upsert(row(1, "a", 1))
    table.upsert({"k": 1, "v": 5}, {"k": 9, "v": 6}, {"k": 1, "v": 5}, {"k": 9, "v": 7}, columns=["v"])
    assert table.records(1) == [
        (1, "-U", 0, 1, "a", 1),
        (2, "+U", 0, 1, "a", 5),
        (3, "+I", None, 9, None, 6),
        (4, "-U", 3, 9, None, 6),
        (5, "+U", 3, 9, None, 7),
    ]
    table.upsert({"k": 1, "v": None}, columns=["v", "k"])
    assert table.lookup(1) == [{**row(1, "a", None), "__offset": 7}]


def test_partial_update_of_an_absent_key_needs_the_not_null_columns(table: Any) -> None:
    table.upsert(row(1, "a", 1))
    table.schemas = {
        1: type(table.schemas[1])(
            columns=(*table.schemas[1].columns[:2], Column(name="v", type=Int32Type(nullable=False)))
        )
    }
    table.kv.set_table(table.info, table.schemas)
    with pytest.raises(InvalidRows) as caught:
        table.upsert({"k": 1, "s": "b"}, {"k": 2, "s": "c"}, columns=["s"])
    assert (caught.value.row, caught.value.column) == (1, "v")
    assert len(table.records()) == 1
    table.upsert({"k": 1, "s": "b"}, columns=["s"])
    assert table.lookup(1) == [{**row(1, "b", 1), "__offset": 2}]


@pytest.mark.parametrize(
    ("rows", "columns", "column"),
    [
        ([{"k": None, "s": "a"}], None, "k"),
        ([{"k": 1, "zz": 1}], None, "zz"),
        ([{"s": "a"}], None, "k"),
        ([{"k": 1, "s": "a"}], ["v"], "v"),
        ([{"k": 1, "v": "text"}], None, "v"),
        ([{"k": 1, "v": 2**40}], None, "v"),
    ],
)
def test_wrong_rows_are_refused_and_nothing_is_stored(
    table: Any, rows: list[Row], columns: list[str] | None, column: str
) -> None:
    with pytest.raises(InvalidRows) as caught:
        table.kv.upsert(pa.RecordBatch.from_pylist(rows), columns)
    assert caught.value.column == column
    assert table.log.end == 0


def test_an_empty_put_takes_an_offset_that_names_no_row(table: Any) -> None:
    assert table.kv.upsert(table.batch([])).stop == 1
    assert table.kv.delete(table.batch([])).stop == 2
    assert table.kv.lookup(table.batch([])).num_rows == 0
    table.upsert(row(1, "a", 1))
    assert table.records() == [(2, "+I", None, 1, "a", 1)]


def test_a_retried_put_is_answered_and_stored_once(table: Any) -> None:
    table.upsert(row(1, "a", 1), writer=WriterSequence(5, 0))
    first = table.upsert(row(1, "b", 1), writer=WriterSequence(5, 1))
    table.upsert(row(1, "c", 1))
    again = table.upsert(row(1, "b", 1), writer=WriterSequence(5, 1))
    assert (again.start, again.stop, again.duplicate) == (first.start, first.stop, True)
    assert table.lookup(1)[0]["s"] == "c"
    no_op = table.delete(77, writer=WriterSequence(5, 2))
    table.reopen()
    assert table.delete(77, writer=WriterSequence(5, 2)).start == no_op.start
    with pytest.raises(OutOfSequence):
        table.upsert(row(1, "z", 1), writer=WriterSequence(5, 9))


def test_rows_of_an_older_schema_read_with_nulls(table: Any) -> None:
    table.upsert(row(1, "a", 1), row(2, "b", 2))
    table.add_columns(Column(name="w", type=StringType()))
    table.upsert({**row(2, "b", 2), "w": None}, {**row(3, "c", 3), "w": "new"})
    assert table.log.end == 3
    assert [r["w"] for r in table.lookup(1, 2, 3)] == [None, None, "new"]
    table.upsert({"k": 1, "w": "late"}, columns=["w"])
    assert [(r["s"], r["w"]) for r in table.lookup(1, 2, 3)] == [("a", "late"), ("b", None), ("c", "new")]
    table.reopen()
    assert [(r["s"], r["w"]) for r in table.lookup(3, 1, 2)] == [("c", "new"), ("a", "late"), ("b", None)]
    table.delete(2)
    assert table.records(5)[0][:6] == (5, "-D", 1, 2, "b", 2)


def test_lookup_projects(table: Any) -> None:
    table.upsert(row(1, "a", 1))
    found = table.kv.lookup(table.batch([{"k": 1}]), ["v"])
    assert found.schema.names == ["v", "__offset", "__timestamp"]
    assert found.column("__timestamp").cast(pa.int64()).to_pylist() == [table.clock.now_ms()]
