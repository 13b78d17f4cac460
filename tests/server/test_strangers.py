# SPDX-License-Identifier: Apache-2.0
"""Attacks by those who have no token: web pages, and peers that only want to do harm."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from lakeward.protocol.routes import API
from lakeward.testing.serverprocess import ServerProcess
from tests.server.conftest import StartServer


@pytest.fixture
def lake_server(start_server: StartServer) -> ServerProcess:
    return start_server(settings={"datalake.format": "iceberg"})


def test_a_folder_elsewhere_cannot_be_named_by_a_lake_snapshot(lake_server: ServerProcess, tmp_path: Path) -> None:
    """What a page could once do: make a lake table, say in a snapshot that its id is a path, adopt it, drop it."""
    victim = tmp_path / "victim"
    victim.mkdir()
    client = lake_server.client()
    client.create_table("d.t", "id BIGINT NOT NULL")
    catalog = RestCatalog("x", uri=f"{lake_server.url}/iceberg")
    table = catalog.load_table("d.t")
    table.append(table.schema().as_arrow().empty_table(), {"lakeward.table-id": "../../victim"})
    descriptor = client.table("d.t").info.descriptor.to_json()
    client.drop_table("d.t")
    answer = httpx.post(
        f"{lake_server.url}{API}/tables/d.t/adopt",
        json={"descriptor": descriptor},
        headers={"lakeward-protocol": "1.1"},
    )
    assert answer.status_code == 400, answer.text
    assert "table id '../../victim'" in answer.text
    assert victim.is_dir()
    catalog.close()


@pytest.mark.parametrize("path", [f"{API}/tables", "/iceberg/v1/namespaces"])
def test_a_page_of_another_server_gets_nothing(lake_server: ServerProcess, path: str) -> None:
    with httpx.Client(base_url=lake_server.url) as http:
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            for method in ("GET", "POST"):
                answer = http.request(method, path, headers={"content-type": "application/json", **headers})
                assert answer.status_code == 403, answer.text
        answer = http.post(path, content=b'{"namespace": ["page"]}', headers={"content-type": "text/plain"})
        assert answer.status_code == 415
        assert "page" not in http.get("/iceberg/v1/namespaces").text
