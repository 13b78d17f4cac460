# SPDX-License-Identifier: Apache-2.0
"""The live warehouse over an object store, and credentials that our own catalog hands out: clients have the URL and a
token, and no credentials of the store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog import load_catalog

from lakeward.model import SystemClock
from lakeward.server.iceberg.vending import CredentialVendor, VendOptions
from lakeward_testing.clock import ManualClock
from lakeward_testing.httpproxy import HttpProxy, ProxyAnswer, ProxyRequest
from lakeward_testing.waiting import wait_until
from tests.interop.javaiceberg import AWS, start_java
from tests.kit.iceberg.engines import duckdb_connection
from tests.kit.iceberg.s3 import REGION, S3Store, s3_store
from tests.oracle.liveworld import LiveWorld, live_world

COLUMNS = "id bigint not null, v string"
TOKENS = ("reader:read:reader-secret", "tiering:job:job-secret")
ROLE = "arn:aws:iam::123456789012:role/lake"


class TokenGate(HttpProxy):
    """In front of the store: takes calls of the server's own key, and of others with a session token."""

    refused = vended = 0
    last_token = ""
    over: frozenset[str] = frozenset()
    """Session tokens that the store takes no more."""

    def treat(self, request: ProxyRequest) -> ProxyAnswer | None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        token = headers.get("x-amz-security-token", "")
        self.vended += bool(token)
        self.last_token = token or self.last_token
        if token in self.over or (not token and "Credential=server/" not in headers.get("authorization", "")):
            self.refused += 1
            return ProxyAnswer(403, {"content-type": "application/xml"}, b"<Error><Code>AccessDenied</Code></Error>")
        return self.send(request)


class ShortSts(HttpProxy):
    """In front of the store's STS: its credentials end after this time, in place of an hour."""

    life_s = 3_600.0

    def treat(self, request: ProxyRequest) -> ProxyAnswer | None:
        answered = self.send(request)
        if answered is None or b"<Expiration>" not in answered.body:
            return answered
        ends = datetime.now(UTC) + timedelta(seconds=self.life_s)
        body = re.sub(rb"<Expiration>[^<]*", f"<Expiration>{ends:%Y-%m-%dT%H:%M:%SZ}".encode(), answered.body)
        headers = {n: v for n, v in answered.headers.items() if n.lower() != "content-length"}
        return replace(answered, headers=headers, body=body)


@dataclass(frozen=True)
class S3World:
    live: LiveWorld
    store: S3Store
    gate: TokenGate
    clock: ManualClock
    options: dict[str, str]
    sts: ShortSts

    def catalog(self, warehouse: str, secret: str = "reader-secret") -> Any:
        return load_catalog("x", type="rest", uri=self.live.url, warehouse=warehouse, token=secret)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3World]:
    """The server has the store's keys among its lake's options; this process has none, as a client."""
    clock = ManualClock(SystemClock().now_ms())
    with s3_store() as store:
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        gate, sts = TokenGate(store.endpoint), ShortSts(store.endpoint)
        options = {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
            "warehouse": store.new_bucket(),
            "s3.endpoint": gate.url,
            "s3.region": REGION,
            "s3.path-style-access": "true",
            "s3.access-key-id": "server",
            "s3.secret-access-key": "server-secret",
            "vend-role": ROLE,
            "vend-endpoint": sts.url,
        }
        with live_world(tmp_path, keep_s=60, clock=clock, options=options, tokens=TOKENS) as live:
            yield S3World(live, store, gate, clock, options, sts)
        gate.close()
        sts.close()


def rows(*ids: int, v: str = "v") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


def test_clients_read_live_in_a_bucket_by_vended_credentials(world: S3World) -> None:
    parts = world.live.lakeward
    parts.create("db.t", COLUMNS, primary_key="id", buckets=2)
    parts.upsert("db.t", rows(*range(20)))
    parts.tier("db.t")
    parts.upsert("db.t", rows(*range(15, 25), v="new"))
    expected = {i: "new" if i >= 15 else "v" for i in range(25)}
    shown = world.catalog("live").load_table("db.t").scan().to_arrow().to_pylist()
    assert {r["id"]: r["v"] for r in shown} == expected
    assert world.catalog("default").load_table("db.t").scan().to_arrow().num_rows == 20
    assert (world.gate.refused, world.gate.vended > 0) == (0, True)
    with duckdb_connection() as engine:
        engine.execute("CREATE SECRET s (TYPE iceberg, TOKEN 'reader-secret')")
        engine.execute(f"ATTACH 'live' AS fresh (TYPE iceberg, ENDPOINT '{world.live.url}', SECRET s)")
        assert dict(engine.execute("SELECT id, v FROM fresh.db.t").fetchall()) == expected
    assert world.gate.refused == 0


def test_files_of_answers_in_a_bucket_go(world: S3World) -> None:
    parts = world.live.lakeward
    parts.create("db.t", COLUMNS)
    parts.append("db.t", rows(1, 2))
    table = world.catalog("live").load_table("db.t")
    (task,) = table.scan().plan_files()
    assert world.live.live.files.count() == 1
    parts.tier("db.t")
    world.clock.advance(2)
    assert world.catalog("live").load_table("db.t").scan().to_arrow().num_rows == 2
    world.clock.advance(61)
    world.live.live.sweep()
    assert world.live.live.files.count() == 0
    with pytest.raises(FileNotFoundError):
        table.io.new_input(task.file.file_path).open().close()


def load(world: S3World, warehouse: str, secret: str, **headers: str) -> httpx.Response:
    prefix = "" if warehouse == "default" else f"/{warehouse}"
    given = {"authorization": f"Bearer {secret}", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return httpx.get(f"{world.live.url}/v1{prefix}/namespaces/db/tables/t", headers=given)


def test_who_gets_which_credentials(world: S3World, caplog: pytest.LogCaptureFixture) -> None:
    """None unasked; by caller and by what it may do; a new tag with new ones; nothing of them in the log."""
    caplog.set_level("DEBUG", logger="lakeward")
    world.live.lakeward.create("db.t", COLUMNS)
    world.live.lakeward.append("db.t", rows(1))
    asking = {"x_iceberg_access_delegation": "vended-credentials"}
    assert load(world, "live", "reader-secret").json()["config"] == {}
    answer = load(world, "live", "reader-secret", **asking)
    config = answer.json()["config"]
    assert answer.json()["storage-credentials"] == [{"prefix": answer.json()["metadata"]["location"], "config": config}]
    path = config.pop("client.refresh-credentials-endpoint")
    assert path == "/v1/live/namespaces/db/tables/t/credentials"
    again = load(world, "live", "reader-secret", **asking)
    assert again.json()["config"].items() > config.items(), "the first half of their life"
    assert load(world, "live", "reader-secret", if_none_match=again.headers["etag"], **asking).status_code == 304
    others = [load(world, w, s, **asking).json()["config"] for w in ("default", "live") for s in ("job-secret",)]
    assert len({c["s3.session-token"] for c in (config, *others)}) == 3
    fresh = httpx.get(world.live.url + path, headers={"authorization": "Bearer reader-secret"})
    assert fresh.json()["storage-credentials"][0]["config"] == config
    assert config["s3.secret-access-key"] not in caplog.text


def test_credentials_are_renewed_in_time(world: S3World) -> None:
    world.live.lakeward.create("db.t", COLUMNS)
    metadata = world.catalog("default").load_table("db.t").metadata
    options = VendOptions.of(world.options)
    assert options is not None
    vendor = CredentialVendor(options, world.clock)
    first = vendor.vend(metadata, "reader", writes=False)
    assert first is not None
    world.clock.advance(1_700)
    assert vendor.vend(metadata, "reader", writes=False) == first
    world.clock.advance(200)
    second = vendor.vend(metadata, "reader", writes=False)
    assert second is not None
    assert second.config["s3.session-token"] != first.config["s3.session-token"]
    assert replace(second, ends_at_ms=0, config={}) == replace(first, ends_at_ms=0, config={})


@pytest.mark.soak
def test_java_reads_past_the_end_of_its_credentials(world: S3World) -> None:
    """Spark keeps the loaded table, so that only the refresh endpoint gives it new credentials."""
    world.sts.life_s = 5.0
    parts = world.live.lakeward
    parts.create("db.t", COLUMNS, primary_key="id", buckets=2)
    parts.upsert("db.t", rows(*range(20)))
    parts.tier("db.t")
    parts.upsert("db.t", rows(*range(15, 25), v="new"))
    options = {
        "token": "reader-secret",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "cache-enabled": "true",
        "cache.expiration-interval-ms": "-1",
    }
    query = "SELECT count(*) AS n, count_if(v = 'new') AS changed FROM lake.db.t"
    with start_java(world.live.url, "live", artifacts=[AWS], options=options) as spark:
        assert spark.sql(query) == [{"n": 25, "changed": 10}]
        spent, ends = world.gate.last_token, datetime.now(UTC) + timedelta(seconds=world.sts.life_s)
        assert spent
        parts.upsert("db.t", rows(99))
        wait_until(lambda: datetime.now(UTC) > ends, what="the end of the credentials")
        world.gate.over = frozenset({spent})
        assert spark.sql(query) == [{"n": 25, "changed": 10}], "the table that it loaded"
        assert world.gate.last_token != spent
        assert world.gate.refused == 0
