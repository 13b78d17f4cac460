# SPDX-License-Identifier: Apache-2.0
"""Table properties come from whoever may alter a table or write its metadata file: none of them names code that is
loaded, or an address that signed requests go to.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from lakeward.errors import InvalidTable
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.meta.ownpaths import checked_answers, open_catalog
from lakeward.lake.iceberg.meta.tableproperties import check_properties, refused_names
from lakeward.model import TablePath

SCHEMA = Schema(NestedField(1, "n", LongType()))
LOADED: list[Any] = []
"""Arguments with which this module's function was called by its name in a property."""

HOSTILE = {
    "write.py-location-provider.impl": f"{__name__}.note_call",
    "py-io-impl": f"{__name__}.note_call",
    "s3.retry-strategy-impl": f"{__name__}.note_call",
    "s3.endpoint": "http://127.0.0.1:1",
    "s3.proxy-uri": "http://127.0.0.1:1",
    "adls.connection-string": "x",
    "uri": "http://127.0.0.1:1",
    "DEFAULT_SCHEME": "s3",
}


def note_call(*arguments: Any) -> Any:
    LOADED.append(arguments)
    raise ModuleNotFoundError("as if there were no such code")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[IcebergConnection]:
    LOADED.clear()
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    connection = IcebergConnection(options)
    connection.catalog.create_namespace("s")
    yield connection
    connection.close()
    assert LOADED == []


@pytest.mark.parametrize("name", HOSTILE)
def test_no_door_of_the_catalog_takes_it(connection: IcebergConnection, name: str) -> None:
    catalog, properties = connection.catalog, {name: HOSTILE[name]}
    with pytest.raises(InvalidTable, match=name):
        catalog.create_table("s.a", SCHEMA, properties=properties)
    with pytest.raises(InvalidTable, match=name):
        catalog._create_staged_table("s.a", SCHEMA, properties=properties)  # type: ignore[attr-defined]
    table = catalog.create_table("s.a", SCHEMA)
    with pytest.raises(InvalidTable, match=name):
        catalog.commit_table(table, (), (SetPropertiesUpdate(updates=properties),))


def with_properties(table: Table, properties: dict[str, str]) -> Path:
    """Writes them into the metadata file itself, as somebody who may write below the table's folder can."""
    file = Path(table.metadata_location.removeprefix("file://"))
    content = json.loads(file.read_text())
    content["properties"] |= properties
    file.write_text(json.dumps(content))
    return file


def test_a_table_that_has_them_goes_on_without_them(
    connection: IcebergConnection, caplog: pytest.LogCaptureFixture
) -> None:
    table = connection.catalog.create_table("s.a", SCHEMA)
    with_properties(table, {**HOSTILE, "owner": "me"})
    connection.close()  # what was parsed before is forgotten with the connection
    loaded = connection.load(TablePath("s", "a"))
    assert not {*HOSTILE} & {*loaded.io.properties} - {"uri"}
    assert loaded.io.properties["uri"].startswith("sqlite:")
    with caplog.at_level(logging.WARNING):
        response = connection.catalog.commit_table(loaded, (), (SetPropertiesUpdate(updates={"owner": "you"}),))
    assert response.metadata.properties["owner"] == "you"
    assert connection.load(TablePath("s", "a")).metadata_location == response.metadata_location


def test_a_rest_server_is_not_believed_what_a_table_says(connection: IcebergConnection) -> None:
    """The catalog's server answers with the table's metadata, and with a `config` of its own."""
    table = connection.catalog.create_table("s.a", SCHEMA)
    properties = {**table.metadata.properties, **HOSTILE, "write.format.default": "parquet"}
    metadata = table.metadata.model_copy(update={"properties": properties})
    config = {"s3.endpoint": "http://storage", "py-io-impl": HOSTILE["py-io-impl"]}
    response = TableResponse.model_validate(
        {"metadata-location": table.metadata_location, "metadata": metadata, "config": config}
    )

    catalog = RestCatalog.__new__(RestCatalog)  # no server is asked for its configuration
    catalog.properties, catalog._auth_manager = {"type": "rest"}, None
    loaded = checked_answers({"type": "rest"}, catalog._response_to_table)(("s", "a"), response)
    assert loaded.metadata.properties == {"write.format.default": "parquet"}
    assert dict(loaded.io.properties) == {
        "type": "rest",
        "s3.endpoint": "http://storage",
        "write.format.default": "parquet",
    }


def test_catalogs_of_others_open_storage_by_the_options_alone(tmp_path: Path) -> None:
    LOADED.clear()
    options = {"type": "in-memory", "warehouse": f"file://{tmp_path}"}
    catalog: Catalog = open_catalog("any", options)
    catalog.create_namespace("s")
    table = catalog.create_table("s.a", SCHEMA)
    with_properties(table, HOSTILE)
    loaded = catalog.load_table("s.a")
    assert "s3.endpoint" not in loaded.io.properties
    loaded.transaction().set_properties({"owner": "me"}).commit_transaction()
    assert catalog.load_table("s.a").properties["owner"] == "me"
    assert LOADED == []
    catalog.close()


def test_what_engines_and_people_write_is_allowed() -> None:
    names = (
        "owner",
        "comment",
        "write.parquet.bloom-filter-enabled.column.id",
        "write.delete.parquet.compression-codec",
        "write.spark.fanout.enabled",
        "write.merge.isolation-level",
        "commit.retry.num-retries",
        "commit.status-check.total-timeout-ms",
        "history.expire.max-ref-age-ms",
        "read.split.target-size",
        "fluss.table.replication.factor",
        "lakeward.column-ids",
    )
    assert refused_names(names) == []
    assert refused_names(["acme.team", "token", "write.location-provider.impl"]) == [
        "acme.team",
        "token",
        "write.location-provider.impl",
    ]
    check_properties("s.a", {"acme.team": "x", "own": "y"}, allowed="acme., other")
    with pytest.raises(InvalidTable, match="allowed-properties"):
        check_properties("s.a", {"acme.team": "x"})
