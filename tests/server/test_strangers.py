# SPDX-License-Identifier: Apache-2.0
"""Attacks by those who have no token: web pages, and peers that only want to do harm."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from lakeward.protocol.routes import API, PROTOCOL, PROTOCOL_HEADER
from tests.kit.serverprocess import ServerProcess
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
        headers={PROTOCOL_HEADER: PROTOCOL},
        timeout=120,
    )
    assert answer.status_code == 400, answer.text
    assert "table id '../../victim'" in answer.text
    assert victim.is_dir()
    catalog.close()


@pytest.mark.parametrize("path", [f"{API}/tables", "/iceberg/v1/namespaces"])
def test_a_page_of_another_server_gets_nothing(lake_server: ServerProcess, path: str) -> None:
    with httpx.Client(base_url=lake_server.url, timeout=120) as http:
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            for method in ("GET", "POST"):
                answer = http.request(method, path, headers={"content-type": "application/json", **headers})
                assert answer.status_code == 403, answer.text
        answer = http.post(path, content=b'{"namespace": ["page"]}', headers={"content-type": "text/plain"})
        assert answer.status_code == 415
        assert "page" not in http.get("/iceberg/v1/namespaces").text


def half_sent(server: ServerProcess) -> socket.socket:
    port = int(server.url.rsplit(":", 1)[1])
    peer = socket.create_connection(("127.0.0.1", port), timeout=120)
    peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    return peer


def test_headers_that_do_not_end_do_not_stay(start_server: StartServer) -> None:
    limits = {"server.http.max-connections-per-peer": "10", "server.http.header-time": "1 s"}
    server = start_server(settings=limits)
    peers = [half_sent(server) for _ in range(30)]
    for peer in peers:
        with peer, suppress(ConnectionResetError):
            assert peer.recv(100) == b"", "it was closed without an answer"
    assert httpx.get(f"{server.url}/healthz", timeout=120).status_code == 200


def test_who_opens_many_and_says_nothing_keeps_nobody_out(start_server: StartServer) -> None:
    """Who shares its address gets its turn at once: the oldest of those go."""
    limits = {"server.http.max-connections-per-peer": "10", "server.flight.max-connections-per-peer": "10"}
    server = start_server(settings=limits)
    table = server.client().create_table("d.t", "id BIGINT")
    flight_port = int(httpx.get(f"{server.url}{API}/info", timeout=120).json()["flight_uri"].rpartition(":")[2])
    with ExitStack() as held:
        for _ in range(30):
            held.enter_context(half_sent(server))
            held.enter_context(socket.create_connection(("127.0.0.1", flight_port), timeout=120))
        assert httpx.get(f"{server.url}/healthz", timeout=120).status_code == 200
        assert table.append([{"id": 1}]).offsets


def test_what_the_server_writes_is_its_own(start_server: StartServer) -> None:
    server = start_server()
    table = server.client().create_table("d.t", "id BIGINT NOT NULL", primary_key=["id"])
    table.upsert({"id": 1})
    open_to_others = [p for p in (server.data, *server.data.rglob("*")) if p.stat().st_mode & 0o077]
    assert open_to_others == []


def test_rights_for_tables_at_every_door(start_server: StartServer) -> None:
    """HTTP, the dashboard and the catalog; Flight has its own test."""
    tokens = "ann:admin:top,sam:admin:eye:shop.*"
    server = start_server(settings={"server.tokens": tokens, "datalake.format": "iceberg"})
    admin, sam = server.client(token="top"), server.client(token="eye")
    for name in ("shop.a", "hr.pay"):
        admin.create_table(name, "id BIGINT NOT NULL")
    assert sam.list_tables() == ["shop.a"]
    sam.create_table("shop.b", "id BIGINT NOT NULL")
    headers = {"authorization": "Bearer eye", "content-type": "application/json"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=120) as http:
        for path in (f"{API}/dashboard", f"{API}/status", f"{API}/rounds", f"{API}/queue", f"{API}/tables"):
            answer = http.get(path)
            assert answer.status_code == 200
            assert "hr.pay" not in answer.text, path
        assert "hr.pay" not in http.get(f"{API}/lags", params={"table": ["hr.pay", "shop.a"]}).text
        assert "hr" not in http.get("/iceberg/v1/namespaces").text
        assert "pay" not in http.get("/iceberg/v1/namespaces/hr/tables").text
        refused = [
            http.get(f"{API}/tables/hr.pay"),
            http.delete(f"{API}/tables/hr.pay"),
            http.post(f"{API}/tables/hr.pay/read-plan"),
            http.post(f"{API}/tables/hr.pay/pause"),
            http.post(f"{API}/tables", json={"path": "hr.new", "descriptor": {"schema": {"columns": []}}}),
            http.get("/metrics"),
            http.post(f"{API}/heartbeat", json={"job": "j", "instance": "i", "slots": 1}),
            http.get("/iceberg/v1/namespaces/hr/tables/pay"),
            http.delete("/iceberg/v1/namespaces/hr/tables/pay"),
            http.post("/iceberg/v1/namespaces", json={"namespace": ["other"]}),
            http.delete("/iceberg/v1/namespaces/hr"),
            http.post(
                "/iceberg/v1/tables/rename",
                json={
                    "source": {"namespace": ["shop"], "name": "a"},
                    "destination": {"namespace": ["hr"], "name": "a"},
                },
            ),
        ]
        assert [(r.request.url.path, r.status_code) for r in refused if r.status_code not in (400, 403)] == []
        assert sum(r.status_code == 403 for r in refused) >= len(refused) - 1
    assert admin.list_tables() == ["hr.pay", "shop.a", "shop.b"]


def test_a_namespace_does_not_lead_out_of_the_warehouse(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(settings={"server.tokens": "ann:admin:top,joe:job:ham", "datalake.format": "iceberg"})
    outside = (tmp_path / "outside").as_uri()
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": False, "type": "long"}]}
    with httpx.Client(
        base_url=f"{server.url}/iceberg/v1", headers={"content-type": "application/json"}, timeout=120
    ) as http:
        job, admin = {"authorization": "Bearer ham"}, {"authorization": "Bearer top"}
        made = http.post("namespaces", json={"namespace": ["a"], "properties": {"location": outside}}, headers=job)
        assert made.status_code == 403
        made = http.post("namespaces", json={"namespace": ["b"], "properties": {"location": outside}}, headers=admin)
        assert made.status_code == 200
        answer = http.post("namespaces/b/tables", json={"name": "t", "schema": schema}, headers=job)
        assert answer.status_code == 403, answer.text
    assert not (tmp_path / "outside").exists()
