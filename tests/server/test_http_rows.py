# SPDX-License-Identifier: Apache-2.0
"""Rows over HTTP against a real server: formats, operations, outcomes, retries and refusals."""

from __future__ import annotations

import gzip
import io
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lakeward.client import Client, Table
from tests.kit.serverprocess import ServerProcess

_NAMES = (f"http.t{n}" for n in itertools.count())
JSON, LINES, CSV = "application/json", "application/x-ndjson", "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
Send = Callable[..., httpx.Response]


@pytest.fixture
def client(shared_server: ServerProcess) -> Iterator[Client]:
    with shared_server.client() as made:
        yield made


@pytest.fixture
def send(shared_server: ServerProcess) -> Iterator[Send]:
    with httpx.Client(base_url=shared_server.url, timeout=60) as http:

        def post(table: Table, body: Any, kind: str = JSON, headers: Any = None, **params: Any) -> httpx.Response:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent = {"Content-Type": kind, **(headers or {})}
            return http.post(f"/api/v1/tables/{table.path}/rows", content=content, headers=sent, params=params)

        yield post


def log_table(client: Client, columns: str = "id bigint not null, name string", **options: Any) -> Table:
    return client.create_table(next(_NAMES), columns, **options)


def pk_table(client: Client, columns: str = "id bigint, name string, n int", **options: Any) -> Table:
    return client.create_table(next(_NAMES), columns, primary_key="id", **options)


def rows_of(table: Table) -> list[dict[str, Any]]:
    return sorted(table.read().to_table().to_pylist(), key=lambda row: str(row["id"]))


def arrow_body(rows: pa.Table, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_table(rows)
    return sink.getvalue()


EXPECTED = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b'[{"id": 1, "name": "a"}, {"id": 2}]'),
        (LINES, b'{"id": 1, "name": "a"}\n\n{"id": 2, "name": null}\n'),
        (CSV, b"id,name\n1,a\n2,\n"),
        (ARROW, arrow_body(pa.table({"id": [1, 2], "name": ["a", None]}))),
        (ARROW, arrow_body(pa.table({"id": [1, 2], "name": ["a", None]}), "zstd")),
    ],
    ids=["json", "lines", "csv", "arrow", "arrow-zstd"],
)
def test_every_format_stores_the_same_rows(client: Client, send: Send, kind: str, body: bytes) -> None:
    table = log_table(client)
    answer = send(table, body, kind)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["accepted"], told["refused"], told["duplicate"]) == (2, 0, False)
    assert [(row["row"], row["bucket"], row["offset"]) for row in told["rows"]] == [(0, "0", 0), (1, "0", 1)]
    assert rows_of(table) == EXPECTED


def test_one_object_is_one_row(client: Client, send: Send) -> None:
    table = log_table(client)
    assert send(table, {"id": 7}).json()["accepted"] == 1


@pytest.mark.parametrize("pack", ["gzip", "zstd"])
def test_bodies_may_be_compressed(client: Client, send: Send, pack: str) -> None:
    table = log_table(client)
    plain = b'[{"id": 1, "name": "a"}, {"id": 2}]'
    body = gzip.compress(plain) if pack == "gzip" else pa.Codec("zstd").compress(plain, asbytes=True)
    assert send(table, body, headers={"Content-Encoding": pack}).status_code == 200
    assert rows_of(table) == EXPECTED


def test_a_compressed_body_that_unpacks_to_too_much_is_refused(client: Client, send: Send) -> None:
    table = log_table(client)
    answer = send(table, gzip.compress(b" " * (64 << 20)), headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 400
    assert "unpacks to more than" in answer.json()["message"]


@pytest.mark.parametrize("number", ["1e-999999999", "0e-999999999", "0." + "9" * 100_000])
@pytest.mark.parametrize(
    ("kind", "body"), [(JSON, '{"id": 1, "d": %s}'), (JSON, '{"id": 1, "d": "%s"}'), (CSV, "id,d\n1,%s\n")]
)
def test_a_decimal_with_too_many_places_is_refused(
    client: Client, send: Send, kind: str, body: str, number: str
) -> None:
    """Arrow ends the process on the first of them."""
    table = log_table(client, "id bigint, d decimal(38, 10)")
    assert send(table, (body % number).encode(), kind).status_code == 400
    assert send(table, {"id": 2, "d": "0.5"}).json()["accepted"] == 1


def test_a_csv_decimal_that_does_not_fit_is_refused(client: Client, send: Send) -> None:
    """Arrow's cast makes another number of it without an error."""
    table = log_table(client, "id bigint, d decimal(38, 25)")
    answer = send(table, b"id,d\n1,8323555416124156774155171.59\n", CSV)
    assert answer.status_code == 400, answer.text
    assert answer.json()["facts"]["column"] == "d"


@pytest.mark.parametrize(
    ("body", "column"),
    [
        (b'id,name,city\n1,a,x\n2,b,"y\n3,c,z\n', "city"),
        (b'id,name,city\n1,a,x\n2,"b,y\n3,c,z\n', "name"),
        (b'id,name,city\r\n1,a,x\r\n2,b,"', "city"),
        (b'id,name,city\n1,a,x\n2,b,"he said ""yes"", then\n', "city"),
    ],
)
def test_a_csv_quote_that_is_never_closed_is_refused(client: Client, send: Send, body: bytes, column: str) -> None:
    """Arrow takes all that follows for one cell."""
    table = log_table(client, "id bigint, name string, city string")
    answer = send(table, body, CSV)
    facts = answer.json()["facts"]
    assert (answer.status_code, facts["row"], facts["column"]) == (400, 1, column), answer.text
    assert "never closed" in facts["reason"]
    skipped = send(table, body, CSV, **{"on-error": "skip"})
    assert (skipped.json()["accepted"], rows_of(table)) == (1, [{"id": 1, "name": "a", "city": "x"}])


def test_quotes_that_csv_may_have_are_stored(client: Client, send: Send) -> None:
    table = log_table(client)
    names = ['b"x', "c", '5" pipe', 'q "z"', "two\nlines", "", '"']
    body = 'id,name\n0,b"x\n1,"c"\n2,5" pipe\n3,"q ""z"""\n4,"two\nlines"\n5,""\n6,""""'
    assert send(table, body.encode(), CSV).status_code == 200
    assert rows_of(table) == [{"id": n, "name": name} for n, name in enumerate(names)]


def test_a_column_that_is_named_twice_is_refused(client: Client, send: Send) -> None:
    table = log_table(client)
    sink = pa.BufferOutputStream()
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pa.ipc.new_stream(sink, twice.schema) as writer:
        writer.write_batch(twice)
    for body, kind in ((b"id,id\n1,2\n", CSV), (b"id,x,x\n1,2,3\n", CSV), (sink.getvalue().to_pybytes(), ARROW)):
        answer = send(table, body, kind)
        assert (answer.status_code, "occurs 2 times" in answer.text) == (400, True), answer.text


def test_lines_that_are_nested_too_deeply_are_refused(client: Client, send: Send) -> None:
    table = log_table(client)
    for line in (b"[" * 200_000, b'{"id":' * 200_000):
        assert send(table, b'{"id": 1}\n' + line + b"\n", LINES).status_code == 400
    assert rows_of(table) == []


def test_upserts_leave_columns_that_a_row_does_not_give(client: Client, send: Send) -> None:
    table = pk_table(client)
    send(table, [{"id": 1, "name": "a", "n": 1}, {"id": 2, "name": "b", "n": 2}])
    send(table, [{"id": 1, "n": 5}, {"id": 3, "name": "c"}])
    assert rows_of(table) == [
        {"id": 1, "name": "a", "n": 5},
        {"id": 2, "name": "b", "n": 2},
        {"id": 3, "name": "c", "n": None},
    ]
    send(table, [{"id": 1, "n": 6}], op="replace")
    send(table, [{"id": 2}], op="delete")
    assert rows_of(table) == [{"id": 1, "name": None, "n": 6}, {"id": 3, "name": "c", "n": None}]


def test_the_token_of_the_answer_reads_what_was_written(client: Client, send: Send) -> None:
    table = log_table(client)
    token = send(table, {"id": 1}).json()["token"]
    assert table.read(at_least=token).to_table().num_rows == 1


def test_one_bad_row_refuses_the_request_and_names_the_field(client: Client, send: Send) -> None:
    table = log_table(client)
    answer = send(table, [{"id": 1}, {"id": "x"}, {"id": None}])
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid-rows"
    assert (answer.json()["facts"]["row"], answer.json()["facts"]["column"]) == (1, "id")
    assert "nothing is stored" in answer.json()["message"]
    assert rows_of(table) == []


@pytest.mark.parametrize(
    ("kind", "body", "refused"),
    [
        (JSON, b'[{"id": 1}, {"id": "x"}, {"id": null}, 5, {"id": 2, "no": 1}, {"id": 3}]', [1, 2, 3, 4]),
        (LINES, b'{"id": 1}\n{"id":\n{"id": 3}\n', [1]),
        (CSV, b"id,name\n1,a\nx,b\n,c\n4,d,e\n3,f\n", [1, 2, 3]),
    ],
    ids=["json", "lines", "csv"],
)
def test_bad_rows_are_skipped_one_by_one_where_asked(
    client: Client, send: Send, kind: str, body: bytes, refused: list[int]
) -> None:
    table = log_table(client)
    answer = send(table, body, kind, **{"on-error": "skip"})
    assert answer.status_code == 207, answer.text
    told = answer.json()
    assert [row["row"] for row in told["rows"] if "error" in row] == refused
    assert (told["accepted"], told["refused"]) == (2, len(refused))
    assert [row["id"] for row in rows_of(table)] == [1, 3]
    only_errors = send(table, body, kind, **{"on-error": "skip", "outcomes": "errors"}).json()
    assert [row["row"] for row in only_errors["rows"]] == refused


def test_rows_that_only_the_store_can_refuse_are_skipped_too(client: Client, send: Send) -> None:
    table = pk_table(client, "id bigint, name string not null, n int")
    send(table, [{"id": 1, "name": "a"}])
    rows = [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 3}]
    answer = send(table, rows, **{"on-error": "skip"}).json()
    assert [row["row"] for row in answer["rows"] if "error" in row] == [1, 2]
    assert rows_of(table) == [{"id": 1, "name": "a", "n": 1}]
    refusal = send(table, rows)
    assert refusal.status_code == 400
    assert refusal.json()["facts"]["row"] == 1


def test_too_many_bad_rows_refuse_the_request(client: Client, send: Send) -> None:
    table = log_table(client)
    answer = send(table, [{"id": None}] * 1500 + [{"id": 1}], **{"on-error": "skip"})
    assert answer.status_code == 400
    assert "1001 rows are refused, and nothing is stored" in answer.json()["message"]
    assert rows_of(table) == []


def test_a_retry_with_the_same_key_stores_nothing_twice(client: Client, send: Send) -> None:
    table = log_table(client, buckets=3)
    rows, key = [{"id": n} for n in range(100)], {"Idempotency-Key": "batch-1"}
    first, second = send(table, rows, headers=key).json(), send(table, rows, headers=key).json()
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["rows"] == second["rows"]
    assert len(rows_of(table)) == 100


def test_a_retry_after_kill_9_stores_nothing_twice(start_server: Any) -> None:
    server = start_server()
    with server.client() as client:
        table = log_table(client, buckets=2)
    url, key = f"/api/v1/tables/{table.path}/rows", {"Idempotency-Key": "k"}
    rows = [{"id": n} for n in range(50)]
    first = httpx.post(server.url + url, json=rows, headers=key, timeout=60).json()
    server.kill()
    server.start()
    again = httpx.post(server.url + url, json=rows, headers=key, timeout=60).json()
    assert again["duplicate"]
    assert again["rows"] == first["rows"]
    with server.client() as client:
        assert client.table(table.path).read().to_table().num_rows == 50


def test_a_key_is_not_good_for_other_rows(client: Client, send: Send) -> None:
    table, key = log_table(client), {"Idempotency-Key": "k"}
    send(table, {"id": 1}, headers=key)
    answer = send(table, {"id": 2}, headers=key)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency-key-reused")
    assert rows_of(table) == [{"id": 1, "name": None}]


def test_too_many_batches_under_a_key_name_the_way_out(client: Client, send: Send) -> None:
    table = pk_table(client)
    rows = [{"id": n, "n": n} if n % 2 else {"id": n, "name": "x"} for n in range(80)]
    answer = send(table, rows, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 400
    assert "op=replace" in answer.json()["message"]
    assert send(table, rows, headers={"Idempotency-Key": "k2"}, op="replace").json()["accepted"] == 80


@pytest.mark.parametrize(
    ("kind", "body", "status", "words"),
    [
        ("text/plain", b"1", 415, "Content-Type"),
        ("application/xml", b"<a/>", 415, "application/json"),
        (JSON, b"{", 400, "not JSON"),
        (JSON, b"[" * 100_000, 400, "nested too deeply"),
        (CSV, b"", 400, "not CSV"),
        (ARROW, b"ARROW1", 400, "Arrow"),
        (ARROW, arrow_body(pa.table({"id": [1]}))[:-30], 400, "Arrow"),
        (ARROW, arrow_body(pa.table({"id": ["x"]})), 400, "id"),
        (CSV, b"id,nope\n1,2\n", 400, "nope"),
    ],
)
def test_what_cannot_be_read_is_refused(
    client: Client, send: Send, kind: str, body: bytes, status: int, words: str
) -> None:
    table = log_table(client)
    answer = send(table, body, kind)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["message"]
    assert rows_of(table) == []


def test_operations_that_do_not_fit_the_table_name_those_that_do(client: Client, send: Send) -> None:
    assert "op=append" in send(log_table(client), {"id": 1}, op="upsert").json()["message"]
    assert "op=upsert" in send(pk_table(client), {"id": 1}, op="append").json()["message"]


def test_types_beyond_json(client: Client, send: Send) -> None:
    columns = "id bigint, t timestamp_ltz(6), d date, p decimal(10,2), b bytes, a array<int>, m map<string,int>"
    table = log_table(client, columns)
    row = {
        "id": 1,
        "t": "2026-01-31T12:00:00.123456Z",
        "d": "2026-01-31",
        "p": "1.50",
        "b": "00ff",
        "a": [1, None],
        "m": {"x": 1},
    }
    assert send(table, row).status_code == 200
    cells = b'id,t,d,p,b,a,m\n1,2026-01-31T12:00:00.123456Z,2026-01-31,1.50,00ff,"[1,null]","{""x"":1}"\n'
    assert send(table, cells, CSV).status_code == 200
    first, second = rows_of(table)
    assert first == second
    assert str(first["p"]) == "1.50"
