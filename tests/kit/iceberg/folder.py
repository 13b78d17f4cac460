# SPDX-License-Identifier: Apache-2.0
"""An Iceberg lake in a folder: a catalog in SQLite, and the warehouse beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load


def folder_options(folder: Path, name: str = "catalog", **more: str) -> dict[str, str]:
    """`name` is the catalog's: several may share the warehouse."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/{name}.db", "warehouse": f"file://{folder}/warehouse", **more}


@contextmanager
def folder_lake(folder: Path, name: str = "catalog", **more: str) -> Iterator[IcebergLakeStorage]:
    lake = load(folder_options(folder, name, **more))
    try:
        yield lake
    finally:
        lake.connection.close()
