# SPDX-License-Identifier: Apache-2.0
"""Hudi: hudi-rs reads. It does not write, so an engine of the test kit plays the other writer, under Hudi's lock."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import hudi
import pyarrow as pa

from lakeward.model import SnapshotId, TablePath
from lakeward_testing.chaos.huditables import HURT
from lakeward_testing.oracle.engines.base import Effect, Engines, Target, foreign_copies, split

if TYPE_CHECKING:
    from lakeward_testing.hudiforeign import HudiForeignEngine


class HudiEngines(Engines):
    format = "hudi"
    hurt = HURT
    no_types = ("TIME(", "TIMESTAMP(")
    """hudi-rs panics at a TIMESTAMP without zone."""

    late_columns = ("hudi-rs",)
    no_keys = ("__empty__", "a,k:1", "a,z:1")
    can_restore = False
    keeps_cuts = False

    def __init__(self, url: str, warehouse: Path) -> None:
        super().__init__(url, warehouse)
        self.read = {"hudi-rs": self._hudi_rs}
        self.add(
            Effect.KEEPS,
            somebody_compacts=self._compact,
            somebody_archives=self._archive,
            somebody_commits_nothing=self._touch,
        )
        self.add(Effect.INSERTS, flat=True, somebody_inserts=self._insert)
        self.add(Effect.ROLLS_BACK, somebody_restores=self._restore)
        self.add(Effect.DROPS, somebody_removes_the_folder=self._drop)

    def _root(self, path: str) -> Path:
        return self.warehouse.joinpath(*split(path))

    def _hudi_rs(self, path: str) -> pa.Table:
        batches = hudi.HudiTableBuilder.from_base_uri(str(self._root(path))).build().read()
        return pa.Table.from_batches(batches) if batches else pa.table({})

    @contextmanager
    def _engine(self, target: Target) -> Iterator[HudiForeignEngine]:
        from lakeward.lake.hudi.plugin import HudiLakeStorage
        from lakeward_testing.hudiforeign import HudiForeignEngine

        table = HudiLakeStorage(str(self.warehouse)).table(TablePath.parse(target.path))
        with table.lock():
            yield HudiForeignEngine(table)

    def _compact(self, target: Target, chance: Random) -> None:
        with self._engine(target) as engine:
            engine.compact()

    def _archive(self, target: Target, chance: Random) -> None:
        """After a compaction: hudi-rs passes over log files of archived instants."""
        with self._engine(target) as engine:
            engine.compact()
            engine.archive()

    def _touch(self, target: Target, chance: Random) -> None:
        with self._engine(target) as engine:
            engine.touch()

    def _insert(self, target: Target, chance: Random) -> None:
        rows = foreign_copies(self._hudi_rs(target.path), chance).to_pylist()
        with self._engine(target) as engine:
            engine.insert([{k: v for k, v in row.items() if not k.startswith("_hoodie_")} for row in rows])

    def _restore(self, target: Target, chance: Random) -> None:
        from lakeward.lake.hudi.plugin import HudiLakeStorage

        table = HudiLakeStorage(str(self.warehouse)).table(TablePath.parse(target.path))
        older = [i.completed for i in table.load_timeline().snapshots][:-1]
        if older:
            with self._engine(target) as engine:
                engine.restore(SnapshotId(chance.choice(older)))

    def _drop(self, target: Target, chance: Random) -> None:
        shutil.rmtree(self._root(target.path))
