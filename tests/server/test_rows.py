# SPDX-License-Identifier: Apache-2.0
"""Rows through a real server: every kind of put and read, every shape rows come in, and the refusal of rows that do not
fit.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas  # type: ignore[import-untyped]
import polars
import pyarrow as pa
import pytest

from lakeward.client import Client, Table
from lakeward.errors import (
    InvalidInput,
    InvalidRequest,
    InvalidRows,
    InvalidTable,
    OffsetOutOfRange,
    SchemaChanged,
    TableAlreadyExists,
    TableNotFound,
)
from lakeward.model import Bucket
from lakeward.protocol.flight import PutKind
from tests.kit.serverprocess import ServerProcess

_NAMES = (f"d.t{n}" for n in itertools.count())
COLUMNS = "id BIGINT NOT NULL, name STRING"


@pytest.fixture
def client(shared_server: ServerProcess) -> Iterator[Client]:
    with shared_server.client() as made:
        yield made


def make(client: Client, columns: Any = COLUMNS, **options: Any) -> Table:
    return client.create_table(next(_NAMES), columns, **options)


def everything(table: Table) -> list[dict[str, Any]]:
    return [row for batch in table.subscribe(idle_s=0.0) for row in batch.to_pylist()]


def ids(table: Table) -> list[int]:
    return sorted(row["id"] for row in everything(table))


def test_rows_come_back_with_their_offsets(client: Client) -> None:
    table = make(client)
    token = table.append([{"id": 1, "name": "a"}, {"id": 2}])
    assert dict(token.offsets) == {Bucket("", 0): 2}
    rows = table.scan(0).to_pylist()
    assert [(r["id"], r["name"], r["__offset"], r["__change_type"]) for r in rows] == [(1, "a", 0, 0), (2, None, 1, 0)]
    assert all(abs((datetime.now(UTC) - r["__timestamp"]).total_seconds()) < 600 for r in rows)
    assert table.scan(0, 1, 2, ["name"]).column_names == ["name", "__offset", "__timestamp", "__change_type"]
    with pytest.raises(OffsetOutOfRange, match="bucket 0"):
        table.scan(0, 0, 3)


def test_rows_go_to_the_bucket_of_their_key(client: Client) -> None:
    table = make(client, buckets=4, bucket_key="id")
    table.append([{"id": n} for n in range(100)])
    table.append([{"id": n} for n in range(100)])
    of_bucket = [table.scan(number).column("id").to_pylist() for number in range(4)]
    assert all(mine[: len(mine) // 2] == mine[len(mine) // 2 :] == sorted(set(mine)) != [] for mine in of_bucket)
    assert ids(table) == sorted(2 * list(range(100)))


class Streams:
    """Has nothing but the Arrow C stream protocol, as polars, DuckDB and pandas have."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def test_rows_are_taken_in_every_shape(client: Client) -> None:
    table = make(client)
    arrow = pa.table({"id": pa.array([1, 2], pa.int32()), "name": pa.array(["x", "y"], pa.large_string())})
    for shape in (
        arrow,
        arrow.to_batches()[0],
        arrow.to_reader(),
        Streams(arrow),
        arrow.to_pylist(),
        iter(arrow.to_pylist()),
        {"id": 1},
    ):
        table.append(shape)
    assert len(everything(table)) == 13


def test_every_type_survives(client: Client) -> None:
    columns = (
        "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(10, 2), i CHAR(3), j STRING, "
        "k BINARY(2), "
        "l BYTES, m DATE, n TIME(3), o TIMESTAMP(6), p TIMESTAMP_LTZ(3), q ARRAY<INT>, r MAP<STRING, INT>, s ROW<x "
        "INT, y STRING>"
    )
    moment = datetime(2024, 2, 29, 12, 30, 15, 123456)
    row = {
        "a": True, "b": -1, "c": 2, "d": 3, "e": 2**40, "f": 0.5, "g": 0.1, "h": Decimal("12.34"), "i": "abc",
        "j": "ü", "k": b"ab",
        "l": b"\x00", "m": date(1969, 12, 31), "n": moment.time().replace(microsecond=123000), "o": moment,
        "p": moment.replace(microsecond=0, tzinfo=UTC), "q": [1, None], "r": [("k", 1)], "s": {"x": 1, "y": None},
    }  # fmt: skip
    table = make(client, columns)
    table.append([row, {}])
    first, second = table.scan(0).select(list(row)).to_pylist()
    assert first == row
    assert set(second.values()) == {None}


@pytest.mark.parametrize(
    ("rows", "row", "column"),
    [
        ([{"id": 1}, {"id": 2, "nome": "x"}], 1, "nome"),
        ([{"id": 1}, {"id": "two"}], 1, "id"),
        ([{"id": 1}, {"id": 2**70}], 1, "id"),
        ([{"id": 1}, {"name": "no id"}], 1, "id"),
        ([{"id": 1, "name": "x"}, {"id": 2, "name": 3}], 1, "name"),
        (pa.table({"id": [1, 2], "extra": [1, 2]}), 0, "extra"),
        (pa.table({"id": [1, None, 3]}), 1, "id"),
        (pa.table({"id": [1.0, 2.5]}), 1, "id"),
        (pa.table({"id": pa.array([1, 2**63], pa.uint64())}), 1, "id"),
        (pa.table({"name": ["x"]}), 0, "id"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_is_stored(
    client: Client, rows: Any, row: int, column: str
) -> None:
    table = make(client)
    with pytest.raises(InvalidRows) as refused:
        table.append(rows)
    assert (refused.value.row, refused.value.column) == (row, column)
    assert everything(table) == []


def test_a_frame_makes_a_table_and_both_show_themselves(server: ServerProcess) -> None:
    client = server.client()  # a client shows 20 tables, and a shared server may have more
    frame = pandas.DataFrame({"id": [1, 2], "at": pandas.to_datetime(["2026-01-01", None]), "name": ["x", None]})
    table = make(client, frame, primary_key="id")
    table.upsert(frame)
    table.upsert(polars.LazyFrame({"id": [3], "name": ["y"]}))
    assert [str(c.type) for c in table.info.schema.columns] == ["BIGINT NOT NULL", "TIMESTAMP(6)", "STRING"]
    assert len(table.lookup([{"id": n} for n in (1, 2, 3)])) == 3
    assert repr(table).startswith(f"Table {table.path} (id BIGINT NOT NULL, at TIMESTAMP(6), name STRING)\n")
    for words in ("primary key id; in no lake", f"  {table.path}: in no lake"):
        assert words in f"{table!r}\n{client!r}"
    with Client("http://127.0.0.1:1") as nowhere:
        assert repr(nowhere) == "Client of http://127.0.0.1:1, which does not answer now"
    client.close()


def test_the_server_refuses_nulls_from_a_client_that_does_not_check(client: Client) -> None:
    table = make(client)
    sender = table.new_sender(PutKind.APPEND, None)
    with pytest.raises(InvalidRows, match="NOT NULL"):
        sender.send([(Bucket("", 0), pa.record_batch({"id": pa.array([None], pa.int64()), "name": ["x"]}))])
    assert everything(table) == []


def test_primary_keys_upsert_partially_delete_and_look_up(client: Client) -> None:
    table = make(client, "k STRING, n INT, note STRING", primary_key="k", buckets=3)
    table.upsert([{"k": k, "n": n, "note": "first"} for n, k in enumerate("abcdef")])
    table.upsert([{"k": "b", "n": 20}], columns=["k", "n"])
    table.delete([{"k": "c"}, {"k": "absent"}])
    found = table.lookup([{"k": "c"}, {"k": "b"}, {"k": "zz"}, {"k": "a"}]).select(["k", "n", "note"]).to_pylist()
    assert found == [{"k": "b", "n": 20, "note": "first"}, {"k": "a", "n": 0, "note": "first"}]
    changes = [(r["k"], r["__change_type"], r["n"]) for r in everything(table) if r["k"] in "bc"]
    assert sorted(changes) == [
        ("b", "insert", 1),
        ("b", "update_after", 20),
        ("b", "update_before", 1),
        ("c", "delete", 2),
        ("c", "insert", 2),
    ]
    with pytest.raises(InvalidRequest, match="primary key"):
        table.append([{"k": "x"}])
    with pytest.raises(InvalidRequest, match="all key columns"):
        table.upsert([{"n": 1}], columns=["n"])


def test_columns_that_are_not_given_stay_in_every_shape_of_rows(client: Client) -> None:
    table = make(client, "k INT, a STRING, b STRING", primary_key="k")
    table.upsert([{"k": k, "a": "a", "b": "b"} for k in range(5)])
    table.upsert(pa.table({"k": pa.array([0], pa.int32()), "a": ["arrow"]}))
    table.upsert([{"k": 1, "a": "dict"}, {"k": 2, "b": None}, {"k": 9}])
    with table.writer() as writer:
        token = writer.upsert([{"k": 3, "a": "writer"}, {"k": 4, "b": "writer"}]).result(120)
    assert token.offsets
    table.upsert({"k": 4, "a": "whole"}, replace=True)
    found = table.lookup([{"k": k} for k in (0, 1, 2, 3, 4, 9)]).select(["a", "b"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("arrow", "b"),
        ("dict", "b"),
        ("a", None),
        ("writer", "b"),
        ("whole", None),
        (None, None),
    ]
    with pytest.raises(InvalidRows) as caught:
        table.upsert([{"k": 1, "a": "x"}, {"k": 2}, {"k": None}])
    assert caught.value.row == 2
    assert table.lookup({"k": 1}).column("a").to_pylist() == ["dict"]


def test_a_buffered_writer_sends_in_order_and_says_what_went_wrong(client: Client) -> None:
    table = make(client)
    with table.writer(max_rows=7, linger_s=600.0) as writer:
        futures = [writer.append({"id": n}) for n in range(100)]
        with pytest.raises(InvalidRows):
            writer.append({"id": None})
        token = writer.flush()
    assert token is not None
    assert dict(token.offsets) == {Bucket("", 0): 100}
    assert [row["id"] for row in table.scan(0).to_pylist()] == list(range(100))
    assert futures[0].result().offsets[Bucket("", 0)] == 7
    client.drop_table(table.path)
    writer = table.writer()
    writer.append({"id": 1})
    with pytest.raises(TableNotFound):
        writer.close()


def test_mixed_writes_of_one_writer_keep_their_order(client: Client) -> None:
    table = make(client, "k INT, v INT", primary_key="k")
    with table.writer(linger_s=0.0) as writer:
        for n in range(20):
            writer.upsert({"k": 1, "v": n})
            writer.delete({"k": 1})
        writer.upsert({"k": 1, "v": 99})
    assert [r["v"] for r in table.lookup({"k": 1}).to_pylist()] == [99]


def test_the_async_writer_acknowledges_many_writes_at_once(client: Client) -> None:
    table = make(client)

    async def write() -> None:
        async with table.async_writer() as writer:
            tokens = await asyncio.gather(*(writer.append({"id": n}) for n in range(50)))
            assert max(t.offsets[Bucket("", 0)] for t in tokens) == 50

    asyncio.run(write())
    assert ids(table) == list(range(50))


def test_a_subscription_begins_where_it_is_told_and_goes_on(client: Client) -> None:
    table = make(client, buckets=2)
    table.append({"id": 1})
    token = table.append({"id": 2})
    middle = datetime.now(UTC) + timedelta(milliseconds=2)
    latest = table.subscribe("latest", idle_s=30.0)
    while datetime.now(UTC) <= middle:
        pass
    table.append({"id": 3})
    assert next(latest).column("id").to_pylist() == [3]
    assert ids(table) == [1, 2, 3]
    assert [r["id"] for r in table.subscribe(middle, idle_s=0.0).rows()] == [3]
    after = sorted(r["id"] for r in table.subscribe(token, idle_s=0.0).rows())
    assert 2 not in after
    assert 3 in after
    first = table.subscribe(idle_s=0.0)
    seen = [r["id"] for r in first.rows()]
    table.append({"id": 4})
    assert sorted(seen + [r["id"] for r in table.subscribe(first.offsets, idle_s=0.0).rows()]) == [1, 2, 3, 4]


def test_a_subscription_says_changes_in_words(client: Client) -> None:
    table = make(client, "id BIGINT NOT NULL, v INT", primary_key="id")
    table.upsert({"id": 1, "v": 1})
    table.upsert({"id": 1, "v": 2})
    table.delete({"id": 1})
    words = [row["__change_type"] for row in table.subscribe(idle_s=0.0).rows()]
    assert words == ["insert", "update_before", "update_after", "delete"]


def test_a_subscription_sees_partitions_that_come_later(client: Client) -> None:
    table = make(client, "id BIGINT, day STRING", partition_by="day")
    table.append([{"id": 1, "day": "mon"}, {"id": 2, "day": "tue"}])
    follow = table.subscribe("latest", idle_s=30.0)
    table.append({"id": 3, "day": "wed"})
    assert next(follow).column("id").to_pylist() == [3]
    assert sorted(table.partitions()) == ["mon", "tue", "wed"]
    assert table.scan(Bucket("tue", 0)).column("id").to_pylist() == [2]
    for bad in (None, "", "..", "a/b", "a$b"):
        with pytest.raises(InvalidRows, match="day"):
            table.append([{"id": 4, "day": "mon"}, {"id": 5, "day": bad}])
    assert ids(table) == [1, 2, 3]


def test_columns_are_added_under_a_client_that_does_not_know(client: Client) -> None:
    old = make(client)
    old.append({"id": 1})
    follow, narrow = old.subscribe(idle_s=30.0), old.subscribe(idle_s=30.0, columns=["id"])
    assert next(follow).column("id").to_pylist() == next(narrow).column("id").to_pylist() == [1]
    new = client.alter_table(old.path, add_columns="note STRING")
    old.append({"id": 2, "name": "still here"})
    new.append({"id": 3, "note": "new"})
    assert [r["note"] for r in new.scan(0).to_pylist()] == [None, None, "new"]
    assert [r["id"] for r in old.scan(0).to_pylist()] == [1, 2, 3]
    # Rows keep the schema that they were written with: a subscription has the column from its first row on.
    followed = [(r["id"], r["note"]) for r in itertools.islice(follow.rows(), 2)]  # in one batch, or in two
    assert followed == [(2, None), (3, "new")]
    assert [r["id"] for r in itertools.islice(narrow.rows(), 2)] == [2, 3]
    with pytest.raises(SchemaChanged):
        list(client.store.read_log(old.info, Bucket("", 0), 0, 3))


def test_a_full_upsert_of_an_older_schema_keeps_the_newer_column(client: Client) -> None:
    old = make(client, "k INT, v INT", primary_key="k")
    new = client.alter_table(old.path, add_columns="note STRING")
    new.upsert({"k": 1, "v": 1, "note": "keep"})
    old.upsert({"k": 1, "v": 2})
    assert new.lookup({"k": 1}).select(["v", "note"]).to_pylist() == [{"v": 2, "note": "keep"}]
    assert old.lookup({"k": 1}).select(["k", "v"]).to_pylist() == [{"k": 1, "v": 2}]


def test_errors_name_the_table(client: Client) -> None:
    calls: list[Callable[[], object]] = [
        lambda: client.create_table("db.named", "id INT, id INT"),
        lambda: client.create_table("db.named", "id INT", primary_key="nope"),
        lambda: client.create_table("db.named", ""),
    ]
    for call in calls:
        with pytest.raises(InvalidInput) as caught:
            call()
        assert "table ?" not in caught.value.message
    table = make(client, "id INT", primary_key="id")
    with pytest.raises(InvalidInput, match=f"table {table.path}: column 'nope': no such column"):
        table.upsert([{"id": 1}], columns=["id", "nope"])


def test_a_moment_that_is_too_fine_is_refused_with_the_way_out(client: Client) -> None:
    table = make(client, "at TIMESTAMP_LTZ(3)")
    with pytest.raises(
        InvalidRows, match=r"finer than TIMESTAMP_LTZ\(3\).*round it.*make the column TIMESTAMP_LTZ\(6\)"
    ):
        table.append({"at": datetime(2026, 1, 1, 0, 0, 0, 1234, UTC)})
    table.append({"at": datetime(2026, 1, 1, 0, 0, 0, 1000, UTC)})


def test_tables_are_listed_shown_and_dropped(client: Client) -> None:
    table = make(client, comment="orders")
    assert table.path in client.list_tables()
    assert client.show_table(table.path).descriptor.comment == "orders"
    with pytest.raises(TableAlreadyExists):
        client.create_table(table.path, COLUMNS)
    assert client.create_table(table.path, COLUMNS, if_not_exists=True).info == table.info
    table.append({"id": 1})
    client.drop_table(table.path)
    again = client.create_table(table.path, COLUMNS)
    assert everything(again) == []
    with pytest.raises(TableNotFound):
        table.append({"id": 2})


@pytest.mark.parametrize(
    "name", ["../x.t", "d./etc/passwd", "d.a/b", "d..", "d.t\x00", "d.-t", ".t", "d.", "d.x" + "y" * 200]
)
def test_table_names_cannot_leave_the_data_folder(client: Client, shared_server: ServerProcess, name: str) -> None:
    with pytest.raises(InvalidTable):
        client.create_table(name, COLUMNS)
    body = {"path": name, "descriptor": {"schema": {"schema_id": 1, "columns": [{"name": "a", "type": "INT"}]}}}
    with pytest.raises(InvalidTable):
        client.server.ask("POST", "/api/v1/tables", body)
    assert not list(shared_server.data.parent.rglob("*passwd*"))
