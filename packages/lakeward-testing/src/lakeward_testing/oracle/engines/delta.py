# SPDX-License-Identifier: Apache-2.0
"""Delta: delta-rs and DuckDB read. delta-rs writes no table with `domainMetadata`, so an engine of the test kit plays
the other writer.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model import SnapshotId, TablePath
from lakeward_testing.chaos.deltatables import HURT
from lakeward_testing.oracle.engines.base import (
    Effect,
    Engines,
    Target,
    duckdb_with,
    foreign_copies,
    has_module,
    select,
    some_keys,
    split,
)

if TYPE_CHECKING:
    from lakeward_testing.deltaforeign import DeltaForeignEngine


class DeltaEngines(Engines):
    format = "delta"
    hurt = HURT
    no_types = ("TIME(",)
    can_restore = False
    keeps_cuts = False

    def __init__(self, url: str, warehouse: Path) -> None:
        super().__init__(url, warehouse)
        self.read = {"delta-rs": self._delta_rs}
        if has_module("duckdb_extension_delta"):
            self.read["DuckDB"] = self._duckdb
        self.add(
            Effect.KEEPS,
            somebody_optimizes=lambda t, _: self._engine(t).optimize(),
            somebody_cleans_the_log=lambda t, _: self._engine(t).clean_log(),
            somebody_commits_nothing=lambda t, _: self._engine(t).touch(),
        )
        self.add(Effect.INSERTS, flat=True, somebody_inserts=self._insert)
        self.add(Effect.DELETES, somebody_deletes=self._delete)
        self.add(Effect.ROLLS_BACK, somebody_restores=self._restore)
        self.add(Effect.DROPS, somebody_removes_the_folder=self._drop)

    def _root(self, path: str) -> Path:
        return self.warehouse.joinpath(*split(path))

    def _engine(self, target: Target) -> DeltaForeignEngine:
        from lakeward.lake.delta.plugin import DeltaLakeStorage
        from lakeward_testing.deltaforeign import DeltaForeignEngine

        return DeltaForeignEngine(DeltaLakeStorage(str(self.warehouse)).log(TablePath.parse(target.path)))

    def _delta_rs(self, path: str) -> pa.Table:
        from deltalake import DeltaTable, QueryBuilder

        table = DeltaTable(str(self._root(path)))
        return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t"))

    def _duckdb(self, path: str) -> pa.Table:
        with duckdb_with("delta") as connection:
            return connection.sql(select(f"delta_scan('{self._root(path)}')")).to_arrow_table()

    def _insert(self, target: Target, chance: Random) -> None:
        self._engine(target).insert(foreign_copies(self._delta_rs(target.path), chance).to_pylist())

    def _delete(self, target: Target, chance: Random) -> list[Any]:
        keys = some_keys(self._delta_rs(target.path), target.number, chance)
        self._engine(target).delete(~pc.field(target.number).isin(keys))
        return keys

    def _restore(self, target: Target, chance: Random) -> None:
        from deltalake import DeltaTable

        versions = [int(entry["version"]) for entry in DeltaTable(str(self._root(target.path))).history()]
        if len(versions) > 1:
            self._engine(target).restore(SnapshotId(str(chance.choice(versions[1:]))))

    def _drop(self, target: Target, chance: Random) -> None:
        shutil.rmtree(self._root(target.path))
