# SPDX-License-Identifier: Apache-2.0
"""A real S3 server process (moto's), for warehouses in buckets."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from pyarrow.fs import S3FileSystem

from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until

REGION = "us-east-1"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""The test server takes any."""


@dataclass(frozen=True)
class S3Store:
    """`environment` holds what a process needs to get in; `options` what a catalog may say openly."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        return dict(CREDENTIALS)

    @property
    def options(self) -> dict[str, str]:
        return {"s3.endpoint": self.endpoint, "s3.region": REGION}

    def new_bucket(self) -> str:
        """A fresh bucket's URI."""
        name = f"lake-{uuid.uuid4().hex[:12]}"
        files = S3FileSystem(
            access_key="test",
            secret_key="test",
            endpoint_override=self.endpoint,
            region=REGION,
            allow_bucket_creation=True,
        )
        files.create_dir(name)
        return f"s3://{name}"


_ONE_AT_A_TIME = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""
"""Moto looks whether a name is taken and then puts, without a lock: of two threads both may win."""


@contextmanager
def s3_store(*, is_atomic: bool = False) -> Iterator[S3Store]:
    """`is_atomic`: of two conditional puts at once one wins, as in a real store."""
    port = free_port()
    server = (
        ["-c", _ONE_AT_A_TIME, str(port)] if is_atomic else ["-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    )
    command = [sys.executable, *server]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    endpoint = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: httpx.get(endpoint, timeout=120), what="the S3 server", tolerate=(httpx.TransportError,))
        yield S3Store(endpoint)
    finally:
        process.terminate()
        process.wait(120)
