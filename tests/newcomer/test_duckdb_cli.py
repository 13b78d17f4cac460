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


def test_three_lines_show_a_row_that_was_just_written(tmp_path: Path) -> None:
    put_extensions(tmp_path)
    server = Server(tmp_path / "data", {})
    try:
        with server.connect() as client:
            table = client.create_table("cafe.orders", "id BIGINT NOT NULL, total DOUBLE", primary_key="id")
            lines = (
                "LOAD iceberg;",
                f"ATTACH 'live' AS fresh (TYPE iceberg, ENDPOINT '{server.url}/iceberg', AUTHORIZATION_TYPE 'none');",
                "SELECT id, total FROM fresh.cafe.orders;",
            )
            began = time.perf_counter()
            table.upsert([{"id": 1, "total": 9.9}])
            command = [str(shell()), "-csv"]
            environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
            shown = subprocess.run(
                command, input="\n".join(lines), capture_output=True, text=True, env=environment, check=True
            )
            print(f"the shell was started and had shown the row {time.perf_counter() - began:.2f} s after its write")
            assert shown.stdout.split() == ["id,total", "1,9.9"], shown.stderr
    finally:
        server.stop()
