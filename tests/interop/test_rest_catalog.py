# SPDX-License-Identifier: Apache-2.0
"""Our REST catalog, as its clients use it: PyIceberg, DuckDB, plain HTTP; roles, races, refusals, nothing secret."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)

import lakeward.duckdb
from lakeward.client import Client
from lakeward.client.options import ClientOptions
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.engines import duckdb_connection, read_duckdb_rest

AsRows = Callable[[pa.Table, IcebergLakeStorage, ScriptedLog], list[Any]]
ROWS = pa.table({"n": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def catalog(served: Any) -> Iterator[RestCatalog]:
    catalog = RestCatalog("c", uri=served.url)
    yield catalog
    catalog.close()


@pytest.fixture
def space(catalog: RestCatalog) -> str:
    name = f"s{uuid.uuid4().hex[:10]}"
    catalog.create_namespace(name)
    return name


def as_role(guarded: Any, name: str) -> RestCatalog:
    return RestCatalog(name, uri=guarded.url, token=f"{name}-secret")


def test_namespaces(catalog: RestCatalog, space: str) -> None:
    assert (space,) in catalog.list_namespaces()
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(space)
    catalog.update_namespace_properties(space, updates={"owner": "me"})
    assert catalog.load_namespace_properties(space) == {"owner": "me"}
    catalog.create_table((space, "t"), ROWS.schema)
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(space)
    catalog.drop_table((space, "t"))
    catalog.drop_namespace(space)
    assert not catalog.namespace_exists(space)
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables(space)


def test_tables_are_created_listed_renamed_registered_and_dropped(catalog: RestCatalog, space: str) -> None:
    table = catalog.create_table((space, "t"), ROWS.schema)
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table((space, "t"), ROWS.schema)
    table.append(ROWS)
    assert catalog.list_tables(space) == [(space, "t")]
    catalog.rename_table((space, "t"), (space, "u"))
    with pytest.raises(NoSuchTableError):
        catalog.load_table((space, "t"))
    assert catalog.table_exists((space, "u"))
    location = catalog.load_table((space, "u")).metadata_location
    catalog.drop_table((space, "u"))
    assert catalog.register_table((space, "again"), location).scan().to_arrow().num_rows == 3


def test_a_staged_table_is_created_by_its_first_commit(catalog: RestCatalog, space: str) -> None:
    with catalog.create_table_transaction((space, "staged"), ROWS.schema) as change:
        assert not catalog.table_exists((space, "staged"))
        change.append(ROWS)
    assert catalog.load_table((space, "staged")).scan().to_arrow().num_rows == 3


def test_of_two_commits_on_one_head_one_lands(catalog: RestCatalog, space: str) -> None:
    catalog.create_table((space, "t"), ROWS.schema, properties={"commit.retry.num-retries": "0"}).append(ROWS)
    tables = [catalog.load_table((space, "t")) for _ in range(4)]
    outcomes: list[str] = []

    def append(table: Any) -> None:
        try:
            table.append(ROWS)
            outcomes.append("done")
        except CommitFailedException:
            outcomes.append("conflict")

    threads = [threading.Thread(target=append, args=(t,)) for t in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["conflict"] * 3 + ["done"]
    assert catalog.load_table((space, "t")).scan().to_arrow().num_rows == 6


def test_duckdb_attaches_and_reads_row_for_row(served: Any, as_rows: AsRows) -> None:
    lake = load({"type": "rest", "uri": served.url})
    log = LakeSuite().make_log(lake, f"duck{uuid.uuid4().hex[:6]}", primary_key=("id",))
    for number in range(3):
        log.upsert(B0, *(row(i, f"version {number}") for i in range(number, number + 5)))
        log.delete(B0, row(number))
        LakeRound.plan(lake, log).run()
        found = read_duckdb_rest(served.url, str(log.table.path))
        assert as_rows(found, lake, log) == log.expected(log.ends())
    lake.connection.close()


def test_duckdb_lists_and_filters_through_the_catalog(served: Any) -> None:
    lake = load({"type": "rest", "uri": served.url})
    log = LakeSuite().make_log(lake, f"duck{uuid.uuid4().hex[:6]}")
    log.append(B0, *(row(i) for i in range(100)))
    LakeRound.plan(lake, log).run()
    with duckdb_connection() as connection:
        connection.execute(f"ATTACH 'any' AS lake (TYPE iceberg, ENDPOINT '{served.url}', AUTHORIZATION_TYPE 'none')")
        assert connection.sql(f"SELECT count(*), max(id) FROM lake.{log.table.path} WHERE id < 50").fetchone() == (
            50,
            49,
        )
    lake.connection.close()


@pytest.mark.parametrize("is_guarded", [False, True], ids=["open", "guarded"])
def test_one_call_attaches_the_catalog(served: Any, guarded: Any, is_guarded: bool) -> None:
    server, token = (guarded, "reader-secret") if is_guarded else (served, None)
    catalog = as_role(guarded, "tiering") if is_guarded else RestCatalog("x", uri=served.url)
    catalog.create_namespace_if_not_exists("attached")
    catalog.create_table(("attached", "t"), ROWS.schema).append(ROWS)
    url = server.url.removesuffix("/iceberg")
    with lakeward.duckdb.connect(url, token=token) as duck:
        assert duck.execute("SELECT count(*) FROM lake.attached.t").fetchone() == (ROWS.num_rows,)
        query = "SELECT *, TIMESTAMPTZ '2026-01-31 12:00:00+00' FROM lake.attached.t ORDER BY n LIMIT 1"
        assert duck.execute(query).fetchall() == [(1, datetime(2026, 1, 31, 12, tzinfo=UTC))]
    with Client(url, options=ClientOptions(token=token)) as client, client.duckdb() as duck:
        assert duck.execute("SELECT count(*) FROM lake.attached.t").fetchone() == (ROWS.num_rows,)


def test_a_token_is_needed_and_its_role_counts(guarded: Any) -> None:
    with pytest.raises(UnauthorizedError):
        RestCatalog("x", uri=guarded.url)
    with pytest.raises(UnauthorizedError):
        RestCatalog("x", uri=guarded.url, token="wrong")
    job, boss, reader, writer = (as_role(guarded, n) for n in ("tiering", "boss", "reader", "writer"))
    job.create_namespace_if_not_exists("roles")
    table = job.create_table(("roles", "t"), ROWS.schema)
    table.append(ROWS)
    for weak in (reader, writer):
        seen = weak.load_table(("roles", "t"))
        assert seen.scan().to_arrow().num_rows == 3
        with pytest.raises(ForbiddenError):
            seen.append(ROWS)
        with pytest.raises(ForbiddenError):
            weak.create_table(("roles", "u"), ROWS.schema)
    with pytest.raises(ForbiddenError):
        job.drop_table(("roles", "t"))
    with pytest.raises(ForbiddenError):
        job.rename_table(("roles", "t"), ("roles", "u"))
    boss.rename_table(("roles", "t"), ("roles", "u"))
    boss.drop_table(("roles", "u"))


def test_a_job_cannot_make_the_server_write_outside_the_warehouse(guarded: Any, tmp_path: Any) -> None:
    job = as_role(guarded, "tiering")
    job.create_namespace_if_not_exists("places")
    for options in (
        {"location": f"file://{tmp_path}/x"},
        {"properties": {"write.metadata.path": f"file://{tmp_path}/y"}},
    ):
        with pytest.raises(ForbiddenError):
            job.create_table(("places", "t"), ROWS.schema, **options)
    table = job.create_table(("places", "t"), ROWS.schema)
    with pytest.raises(ForbiddenError), table.transaction() as change:
        change.set_properties({"write.metadata.path": f"file://{tmp_path}/z"})
    assert not list(tmp_path.iterdir())


def test_config_says_nothing_secret(guarded: Any) -> None:
    answer = httpx.get(
        f"{guarded.url}/v1/config?warehouse=w", headers={"authorization": "Bearer reader-secret"}, timeout=120
    )
    assert answer.status_code == 200
    assert "hidden" not in answer.text
    assert answer.json()["defaults"] == {}  # a local warehouse has no endpoint


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "namespaces", b"{", 400),
        ("POST", "namespaces", b"[]", 400),
        ("POST", "namespaces", b'{"namespace": []}', 400),
        ("POST", "namespaces", b'{"namespace": ["../up"]}', 400),
        ("POST", "namespaces", b'{"namespace": ["a"], "properties": {"k": 1}}', 400),
        ("GET", "namespaces/nowhere", b"", 404),
        ("HEAD", "namespaces/nowhere", b"", 404),
        ("GET", "namespaces/nowhere/tables/t", b"", 404),
        ("POST", "namespaces/nowhere/tables", b'{"name": "t"}', 400),
        ("POST", "namespaces/nowhere/tables/t", b'{"requirements": [{"type": "no-such"}], "updates": []}', 400),
        ("POST", "namespaces/nowhere/tables/t", b'{"requirements": [], "updates": [{"action": "no-such"}]}', 400),
        ("POST", "namespaces/nowhere/tables/t", b'{"requirements": [], "updates": []}', 404),
        ("POST", "namespaces/nowhere/register", b'{"name": "t", "metadata-location": "file:///nowhere/x.json"}', 400),
        ("POST", "tables/rename", b'{"source": {}, "destination": 3}', 400),
    ],
)
def test_bad_requests_are_refused_in_the_catalogs_own_form(
    served: Any, method: str, path: str, body: bytes, status: int
) -> None:
    answer = httpx.request(
        method, f"{served.url}/v1/{path}", content=body, headers={"content-type": "application/json"}, timeout=120
    )
    assert answer.status_code == status
    if method != "HEAD":
        error = answer.json()["error"]
        assert error["code"] == status
        assert error["message"]
        assert error["type"]


def test_old_metadata_files_go_as_the_table_says(catalog: RestCatalog, space: str) -> None:
    properties = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
    table = catalog.create_table((space, "t"), ROWS.schema, properties=properties)
    for _ in range(5):
        table.append(ROWS)
    folder = table.location().removeprefix("file://") + "/metadata"
    assert len(list(Path(folder).glob("*.metadata.json"))) == 3


def test_removing_a_property_that_is_not_there_is_no_error(catalog: RestCatalog, space: str) -> None:
    table = catalog.create_table((space, "t"), ROWS.schema)
    body = {"requirements": [], "updates": [{"action": "remove-properties", "removals": ["nothing"]}]}
    url = f"{catalog.uri.rstrip('/')}/v1/namespaces/{space}/tables/t"
    assert httpx.post(url, json=body, timeout=120).status_code == 200
    assert table.refresh().properties == {}
