# SPDX-License-Identifier: Apache-2.0
"""Daft, and DuckDB's driver for SQLAlchemy 1.4 as Superset has it, in an environment and a process of their own: the
other side of `py_engines.py`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

from lakeward.config.cache import cache_folder
from tests.interop.javaiceberg import LineProcess

DUCKDB, EXTENSIONS = "1.5.5", ("avro", "httpfs", "iceberg")
PACKAGES = (
    "daft==0.7.26",
    "pyiceberg==0.12.0",
    "sqlalchemy==1.4.54",
    "duckdb-engine==0.17.0",
    f"duckdb=={DUCKDB}",
    *(f"duckdb-extension-{name}=={DUCKDB}" for name in EXTENSIONS),
)


class PyEngines(LineProcess):
    """The other side of `py_engines.py`."""

    def daft(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        return self._ask({"daft": table, "columns": list(columns)})

    def sql(self, text: str) -> list[dict[str, Any]]:
        """By SQLAlchemy, each statement on a connection of its own, as in Superset."""
        return self._ask({"sql": text})


def environment() -> tuple[Path, list[Path]]:
    """Python with these packages, and DuckDB's extensions; made once and kept in the cache folder."""
    folder = cache_folder() / "py-engines"
    folder.mkdir(parents=True, exist_ok=True)
    python, complete = folder / "bin" / "python", folder / "complete"
    with (folder.parent / "py-engines.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not complete.exists() or complete.read_text() != " ".join(PACKAGES):
            uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
            subprocess.run([uv, "venv", "-q", "--allow-existing", "--python", "3.11", str(folder)], check=True)
            subprocess.run([uv, "pip", "install", "-q", "--python", str(python), *PACKAGES], check=True)
            complete.write_text(" ".join(PACKAGES))
    return python, [next(folder.rglob(f"{name}.duckdb_extension")) for name in EXTENSIONS]


@contextmanager
def start_py_engines(url: str) -> Iterator[PyEngines]:
    """With the catalog's URL and the warehouse `live` alone."""
    python, extensions = environment()
    command = [str(python), str(Path(__file__).with_name("py_engines.py")), url, json.dumps(list(map(str, extensions)))]
    with LineProcess.started(command, {"PATH": "/usr/bin:/bin", "DAFT_ANALYTICS_ENABLED": "0"}) as process:
        yield PyEngines(process)
