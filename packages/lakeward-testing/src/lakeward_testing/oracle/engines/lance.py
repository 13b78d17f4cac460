# SPDX-License-Identifier: Apache-2.0
"""Lance: the library and DuckDB read; the library changes the table."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import lance
import pyarrow as pa

from lakeward_testing.chaos.lancetables import HURT
from lakeward_testing.oracle.engines.base import (
    Effect,
    Engines,
    Target,
    duckdb_with,
    foreign_copies,
    has_module,
    listed,
    select,
    some_keys,
    split,
)


class LanceEngines(Engines):
    format = "lance"
    hurt = (*HURT, ValueError, RuntimeError)
    can_restore = False
    cannot_show = {"DuckDB": ("ARRAY", "ROW<m")}
    """DuckDB's extension shows `[None]` where a list holds two nulls and nothing else; pylance shows both."""

    def __init__(self, url: str, warehouse: Path) -> None:
        super().__init__(url, warehouse)
        self.read = {"pylance": self._pylance}
        if has_module("duckdb_extension_lance"):
            self.read["DuckDB"] = self._duckdb
        self.add(
            Effect.KEEPS,
            pylance_compacts=lambda t, _: self._open(t.path).optimize.compact_files(
                materialize_deletions_threshold=0.0
            ),
            pylance_cleans_up=lambda t, _: self._open(t.path).cleanup_old_versions(
                timedelta(0), error_if_tagged_old_versions=False
            ),
        )
        self.add(Effect.INSERTS, pylance_inserts=self._insert)
        self.add(
            Effect.DELETES,
            pylance_deletes=self._delete,
        )
        self.add(Effect.ALTERS, pylance_updates=self._update)
        self.add(Effect.ROLLS_BACK, pylance_restores=self._restore)
        self.add(Effect.DROPS, somebody_removes_the_folder=self._drop)

    def _root(self, path: str) -> Path:
        database, table = split(path)
        return self.warehouse / database / f"{table}.lance"

    def _open(self, path: str) -> lance.LanceDataset:
        return lance.dataset(str(self._root(path)))

    def _pylance(self, path: str) -> pa.Table:
        return self._open(path).to_table()

    def _duckdb(self, path: str) -> pa.Table:
        with duckdb_with("lance") as connection:
            return connection.sql(select(f"'{self._root(path)}'")).to_arrow_table()

    def _insert(self, target: Target, chance: Random) -> None:
        dataset = self._open(target.path)
        dataset.insert(foreign_copies(dataset.to_table(), chance))

    def _delete(self, target: Target, chance: Random) -> list[Any]:
        keys = some_keys(self._pylance(target.path), target.number, chance)
        self._open(target.path).delete(f"{target.number} in ({listed(keys)})")
        return keys

    def _update(self, target: Target, chance: Random) -> None:
        keys = some_keys(self._pylance(target.path), target.number, chance)
        self._open(target.path).update({"must": "-1"}, where=f"{target.number} in ({listed(keys)})")

    def _restore(self, target: Target, chance: Random) -> None:
        dataset = self._open(target.path)
        older = [v["version"] for v in dataset.versions() if v["version"] != dataset.version]
        if older:
            lance.dataset(str(self._root(target.path)), version=chance.choice(older)).restore()

    def _drop(self, target: Target, chance: Random) -> None:
        shutil.rmtree(self._root(target.path))
