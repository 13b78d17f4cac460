# SPDX-License-Identifier: Apache-2.0
"""DuckDB's own shell, without Python and without a package of ours: three lines show a row that no round has moved."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from lakeward.config.cache import cache_folder
from lakeward_testing.waiting import wait_until
from tests.spark.processes import Server

pytestmark = pytest.mark.soak

VERSION, EXTENSIONS = "1.5.5", ("avro", "httpfs", "iceberg")


def shell() -> Path:
    """From PyPI; made once and kept in the cache folder."""
    folder = cache_folder() / f"duckdb-cli-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "duckdb-cli.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
            command = [uv, "pip", "install", "-q", "--no-deps", "--target", str(partial), f"duckdb-cli=={VERSION}"]
            subprocess.run(command, check=True)
            partial.rename(folder)
    return next(path for path in folder.rglob("duckdb") if path.is_file() and os.access(path, os.X_OK))


def put_extensions(home: Path) -> None:
    """Where `INSTALL` puts them: the registry of DuckDB's extensions cannot be reached from here."""
    for name in EXTENSIONS:
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert spec is not None
        assert spec.origin is not None
        (file,) = Path(spec.origin).parent.rglob(f"{name}.duckdb_extension")
        platform = "linux_amd64" if os.uname().machine == "x86_64" else "linux_arm64"
        target = home / ".duckdb" / "extensions" / f"v{VERSION}" / platform
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


class Shell:
    """The process that people type into."""

    def __init__(self, home: Path) -> None:
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        self._process = subprocess.Popen(
            [str(shell()), "-csv", "-noheader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )

    def type(self, *lines: str) -> str:
        """The last of them shows one line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n".join((*lines, "")))
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        assert self._process.stdout is not None
        self._process.communicate()
        assert self._process.returncode == 0


def test_three_lines_show_a_row_that_was_just_written(tmp_path: Path) -> None:
    """From the start of the shell, then in the shell that is attached: the SELECT again until the row shows, which a
    moment that others share (`live.hold`) may hide for a second."""
    put_extensions(tmp_path)
    server = Server(tmp_path / "data", {})
    opened, waits = None, list[float]()
    select = "SELECT id, total FROM fresh.cafe.orders ORDER BY id DESC LIMIT 1;"
    try:
        with server.connect() as client:
            table = client.create_table("cafe.orders", "id BIGINT NOT NULL, total DOUBLE", primary_key="id")
            table.upsert([{"id": 1, "total": 9.9}])
            began = time.perf_counter()
            opened = Shell(tmp_path)
            attach = (
                f"ATTACH 'live' AS fresh (TYPE iceberg, ENDPOINT '{server.url}/iceberg', AUTHORIZATION_TYPE 'none');"
            )
            assert opened.type("LOAD iceberg;", attach, select) == "1,9.9"
            started_s = time.perf_counter() - began
            for number in range(2, 32):
                table.upsert([{"id": number, "total": 9.9}])
                began = time.perf_counter()
                wait_until(lambda n=number: opened.type(select) == f"{n},9.9", what="the row in the shell")  # type: ignore[misc]
                waits.append(time.perf_counter() - began)
        p50, most = sorted(waits)[len(waits) // 2], max(waits)
        print(
            f"shell started, attached and row shown in {started_s:.2f} s; then a row p50 {p50:.3f} s, max {most:.3f} s"
        )
    finally:
        if opened is not None:
            opened.close()
        server.stop()
