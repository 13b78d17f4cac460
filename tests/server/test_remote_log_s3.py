# SPDX-License-Identifier: Apache-2.0
"""The remote tier in an object store: a real S3 protocol over a local socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.unit.hot.embedded.yard import B0, StubGuard, Yard, read, rows


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.close()


@pytest.fixture
def bucket_uri(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1").create_bucket(Bucket="tier")
    yield f"s3://tier/lakeward?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    server.stop()


def test_upload_read_expire_drop(yard: Yard, bucket_uri: str) -> None:
    yard.settings["remote.data.dir"] = bucket_uri
    store = yard.open()
    table = yard.table(properties={"table.log.fsync": "never", "table.log.ttl": "1h"})
    store.create_table(table)
    for n in range(60):
        store.append(table, B0, rows(n))
    store.upkeep.upload()
    assert store.upkeep.failures == {}
    assert store.sizes()[0].remote_segments >= 3
    assert store.sizes()[0].local_segments == 2
    assert read(store, table) == [(o, o) for o in range(60)]
    again = yard.open(yard.crash(store))
    assert read(again, table) == [(o, o) for o in range(60)]
    guard = StubGuard()
    guard.enabled = False
    again.set_retention(guard)
    yard.clock.advance(3601)
    again.upkeep.expire()
    assert again.upkeep.failures == {}
    start = again.bounds(table)[B0].start
    assert start > 30
    assert read(again, table) == [(o, o) for o in range(start, 60)]
    again.drop_table(table.path)
    assert again.upkeep.failures == {}
