# SPDX-License-Identifier: Apache-2.0
"""Paimon: pypaimon's native and its Python reader read; pypaimon changes the table."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pypaimon import CatalogFactory

from lakeward.model import SnapshotId, TablePath
from lakeward_testing.chaos.paimontables import HURT, PaimonMeddler
from lakeward_testing.oracle.engines.base import Effect, Engines, Target, foreign_copies, split

if TYPE_CHECKING:
    from lakeward_testing.paimonforeign import PaimonForeignEngine


class PaimonEngines(Engines):
    format = "paimon"
    hurt = (*HURT, ValueError)
    can_restore = False

    def __init__(self, url: str, warehouse: Path) -> None:
        super().__init__(url, warehouse)
        self.read = {
            "pypaimon, native reader": lambda path: self._pypaimon(path, "true"),
            "pypaimon, Python reader": lambda path: self._pypaimon(path, "false"),
        }
        self.add(
            Effect.KEEPS,
            pypaimon_compacts=lambda t, _: self._engine(t).compact(),
            pypaimon_expires=lambda t, _: self._engine(t).expire(),
            pypaimon_commits_nothing=lambda t, _: self._engine(t).touch(),
        )
        self.add(Effect.INSERTS, flat=True, pypaimon_inserts=self._insert)
        self.add(Effect.ROLLS_BACK, pypaimon_rolls_back=self._roll_back)
        self.add(Effect.DROPS, somebody_removes_the_folder=self._drop)

    def _table(self, path: str) -> Any:
        return CatalogFactory.create({"warehouse": str(self.warehouse)}).get_table(path)

    def _pypaimon(self, path: str, native: str) -> pa.Table:
        builder = self._table(path).copy({"read.native.enabled": native}).new_read_builder()
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    def _engine(self, target: Target) -> PaimonForeignEngine:
        from lakeward.lake.paimon.meta.connection import PaimonConnection

        return PaimonMeddler(PaimonConnection({"warehouse": str(self.warehouse)}), TablePath.parse(target.path))

    def _insert(self, target: Target, chance: Random) -> None:
        engine = self._engine(target)
        rows = foreign_copies(self._pypaimon(target.path, "true"), chance)
        engine.insert(pa.Table.from_pylist(rows.to_pylist(), engine.schema()))

    def _roll_back(self, target: Target, chance: Random) -> None:
        folder = self.warehouse / f"{split(target.path)[0]}.db" / split(target.path)[1] / "snapshot"
        numbers = sorted(int(p.name.partition("-")[2]) for p in folder.glob("snapshot-*"))
        if len(numbers) > 1:
            self._engine(target).roll_back(SnapshotId(str(chance.choice(numbers[:-1]))))

    def _drop(self, target: Target, chance: Random) -> None:
        database, table = split(target.path)
        shutil.rmtree(self.warehouse / f"{database}.db" / table)
