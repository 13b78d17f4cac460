# SPDX-License-Identifier: Apache-2.0
"""Other engines change lake tables of ours through our own catalog: what a table can follow is taken, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType, UUIDType

from lakeward.client import Client
from tests.spark.processes import Job, Server, tier_now

NAME, NAMED = "shop.orders", ("shop", "orders")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    server = Server(tmp_path / "server")
    job = Job(server, "job", spark=False)
    with server.connect() as client:
        client.create_table(NAME, "id BIGINT NOT NULL, n INT, state STRING", primary_key="id", freshness="1 h")
        put(client, {"id": 1, "n": 1, "state": "new"})
        yield client
    job.kill()
    server.kill()


def put(client: Client, row: dict[str, object]) -> None:
    table = client.table(NAME)
    table.upsert([row])
    tier_now(client, table)


def catalog_of(client: Client) -> RestCatalog:
    return RestCatalog("served", uri=f"{client.url}/iceberg")


def rename(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("state", "status")


def drop(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("state")


def widen(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("n", LongType())


def require(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.add_column("theirs", StringType(), required=True)


def partition(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("state", IdentityTransform(), "by_state")


def strange(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("theirs", UUIDType())


def rename_by_case(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("state", "N")


def change_ours(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("__offset", "place")


CHANGES: list[Callable[[Table], None]] = [require, partition, strange, rename_by_case, change_ours]


def test_what_a_table_cannot_follow_is_refused_and_it_goes_on(client: Client) -> None:
    for change in CHANGES:
        with pytest.raises(BadRequestError, match=r"table shop\.orders( cannot be altered|: column 'N')"):
            change(catalog_of(client).load_table(NAMED))
    put(client, {"id": 2, "n": 2, "state": "paid"})
    assert len(client.read(NAME, mode="lake").to_table()) == 2


def test_a_column_that_another_engine_adds_is_followed(client: Client) -> None:
    with catalog_of(client).load_table(NAMED).update_schema() as update:
        update.add_column("note", StringType(), doc="theirs")
    assert [str(c.type) for c in client.show_table(NAME).schema.columns if c.name == "note"] == ["STRING"]
    put(client, {"id": 2, "n": 2, "state": "paid", "note": "hello"})
    rows = client.read(NAME, mode="lake").to_table().to_pylist()
    assert {r["id"]: r["note"] for r in rows} == {1: None, 2: "hello"}


def test_what_another_engine_renames_drops_widens_and_moves_is_followed(client: Client) -> None:
    old_table = client.table(NAME)
    rename(catalog_of(client).load_table(NAMED))
    widen(catalog_of(client).load_table(NAMED))
    put(client, {"id": 2, "n": 3_000_000_000, "status": "paid"})
    with catalog_of(client).load_table(NAMED).update_schema() as update:
        update.move_first("status").add_column("note", StringType(), doc="theirs").rename_column("id", "order_id")
    old_table.upsert([{"id": 3, "n": 3, "state": "sent"}])
    with catalog_of(client).load_table(NAMED).update_schema() as update:
        update.delete_column("n")
    put(client, {"order_id": 4, "status": "new", "note": "x"})
    expected = [
        {"status": "new", "order_id": 1, "note": None},
        {"status": "paid", "order_id": 2, "note": None},
        {"status": "sent", "order_id": 3, "note": None},
        {"status": "new", "order_id": 4, "note": "x"},
    ]
    for mode in ("union", "lake"):
        rows = client.read(NAME, mode=mode).to_table()
        assert rows.column_names == ["status", "order_id", "note"]
        assert sorted(rows.to_pylist(), key=lambda row: row["order_id"]) == expected
    lake = catalog_of(client).load_table(NAMED)
    shown = lake.scan(selected_fields=("status", "order_id", "note")).to_arrow().to_pylist()
    assert sorted(shown, key=lambda row: row["order_id"]) == expected
    assert client.show_table(NAME).descriptor.primary_key == ("order_id",)


def test_a_lake_table_of_a_living_table_keeps_its_name(client: Client) -> None:
    catalog = catalog_of(client)
    with pytest.raises(BadRequestError, match="lake table of a table of this server"):
        catalog.rename_table(NAMED, ("shop", "other"))
    put(client, {"id": 2, "n": 2, "state": "paid"})
