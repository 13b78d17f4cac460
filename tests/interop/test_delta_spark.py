# SPDX-License-Identifier: Apache-2.0
"""Delta's own code in Spark: it reads what we wrote, and writes between our rounds, which go on or stop in words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import ForeignRowsFound, LakeRolledBack
from lakeward.lake.delta.plugin import DeltaLakeStorage, open_lake
from lakeward.model import SnapshotId, TableInfo
from lakeward_testing.deltaforeign import DeltaForeignEngine
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.interop.javaiceberg import JavaIceberg, start_delta
from tests.interop.test_delta import changed_columns

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def engine() -> Iterator[JavaIceberg]:
    with start_delta() as engine:
        yield engine


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLakeStorage:
    return open_lake({"warehouse": str(tmp_path)})


class Yard:
    """A PK table of two buckets, its rounds, and Spark on its folder."""

    def __init__(self, lake: DeltaLakeStorage, engine: JavaIceberg, **options: Any) -> None:
        self.lake, self.engine = lake, engine
        self.log: ScriptedLog = LakeSuite().make_log(lake, primary_key=("id",), **options)
        self.name = f"delta.`{lake.log(self.table.path).root}`"
        self._number = 0

    @property
    def table(self) -> TableInfo:
        return self.log.table

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self._number += 1
            self.log.upsert(B0, row(self._number), row(1, f"change {self._number}"))
            self.log.upsert(B1, row(100 + self._number % 4, f"change {self._number}"))
            if self._number % 3 == 0:
                self.log.delete(B0, row(self._number - 1))
            LakeRound.plan(self.lake, self.log).run()

    def theirs(self, version: str | None = None) -> list[tuple[int, int, int, str]]:
        of = "" if version is None else f" VERSION AS OF {version}"
        rows = self.engine.sql(f"SELECT __bucket, __offset, id, name FROM {self.name}{of} ORDER BY 1, 2")
        return [(r["__bucket"], r["__offset"], r["id"], r["name"]) for r in rows]

    def ours(self, version: str | None = None) -> list[tuple[int, int, int, str]]:
        found = lake_rows(self.lake, self.table, None if version is None else SnapshotId(version))
        return [(b.number, offset, r["id"], r["name"]) for b, offset, r in found]

    def check(self) -> None:
        wanted = [(b.number, offset, r["id"], r["name"]) for b, offset, r in self.log.expected(self.log.ends())]
        assert self.ours() == wanted
        assert self.theirs() == wanted


def test_it_reads_vectors_checkpoints_rewrites_and_the_past(lake: DeltaLakeStorage, engine: JavaIceberg) -> None:
    yard = Yard(lake, engine)
    yard.rounds(13)
    assert list(lake.log(yard.table.path).listing().checkpoints) == [10]
    yard.check()
    for version in ("4", "9"):
        assert yard.theirs(version) == yard.ours(version)
    LakeRewrite(lake=lake, table=yard.table).run()
    yard.check()


def test_rounds_go_on_after_optimize_vacuum_and_delete(lake: DeltaLakeStorage, engine: JavaIceberg) -> None:
    yard = Yard(lake, engine)
    yard.rounds(4)
    engine.sql(f"OPTIMIZE {yard.name}")
    yard.check()
    yard.rounds(3)
    engine.sql(f"VACUUM {yard.name}")
    yard.check()
    engine.sql(f"DELETE FROM {yard.name} WHERE id = 1")
    yard.rounds(6)
    yard.check()
    LakeRewrite(lake=lake, table=yard.table).run()
    engine.sql(f"OPTIMIZE {yard.name}")
    yard.rounds(2)
    yard.check()


def test_a_merge_that_inserts_stops_rounds_in_words(lake: DeltaLakeStorage, engine: JavaIceberg) -> None:
    yard = Yard(lake, engine)
    yard.rounds(2)
    merge = f"""
        MERGE INTO {yard.name} t USING (SELECT 77L AS id, 'theirs' AS name) s ON t.id = s.id
        WHEN NOT MATCHED THEN INSERT (id, name, amount, __bucket, __offset, __timestamp)
        VALUES (s.id, s.name, 1, 0, 9999, current_timestamp())
    """
    engine.sql(merge)
    assert (0, 9999, 77, "theirs") in yard.theirs()
    with pytest.raises(ForeignRowsFound):
        yard.rounds(1)


def test_a_restore_stops_rounds_until_a_resync(lake: DeltaLakeStorage, engine: JavaIceberg) -> None:
    """Delta keeps our newest domain metadata, offsets included, over the rows of an older version."""
    yard = Yard(lake, engine)
    yard.rounds(5)
    wanted = yard.ours("2")
    engine.sql(f"RESTORE TABLE {yard.name} TO VERSION AS OF 2")
    assert yard.theirs() == yard.ours() == wanted
    with pytest.raises(LakeRolledBack, match="resync"):
        yard.rounds(1)
    reader = lake.open_reader(yard.table)
    base = reader.load_base_as_is()
    then = reader.load_snapshot(SnapshotId("2"))
    assert then is not None
    assert base.offsets == then.offsets
    again = LakeRound.plan(lake, yard.log, planned_on=base, generation=base.generation + 1).write(B0).write(B1)
    again.commit(again.prepare(base))
    yard.check()
    yard.rounds(2)
    yard.check()


@pytest.mark.parametrize(
    ("deeds", "is_noticed"),
    [(["OPTIMIZE"], False), (["RESTORE"], True), (["RESTORE", "OPTIMIZE"], True)],
    ids=lambda value: str(value),
)
def test_what_they_did_is_told_by_rows_when_its_log_entry_is_gone(
    lake: DeltaLakeStorage, engine: JavaIceberg, deeds: list[str], is_noticed: bool
) -> None:
    """A restore leaves as many rows as there were, as a compaction does."""
    yard = Yard(lake, engine)
    for name in ("one", "two", "three"):
        yard.log.upsert(B0, row(1, name), row(2))
        LakeRound.plan(lake, yard.log).run()
    for deed in deeds:
        engine.sql({"RESTORE": "RESTORE TABLE {} TO VERSION AS OF 2"}.get(deed, "OPTIMIZE {}").format(yard.name))
    assert len(yard.theirs()) == len(yard.ours()) == 2
    others = DeltaForeignEngine(lake.log(yard.table.path))
    others.touch()
    others.clean_log()
    if is_noticed:
        with pytest.raises(LakeRolledBack, match="resync"):
            yard.rounds(1)
    else:
        yard.rounds(1)
        yard.check()


def test_a_vacuum_leaves_a_round_under_way_and_what_readers_hold(lake: DeltaLakeStorage, engine: JavaIceberg) -> None:
    """Its files are named by no version yet; those of older versions are kept as long as the table says."""
    yard = Yard(lake, engine)
    yard.rounds(4)
    LakeRewrite(lake=lake, table=yard.table).run()
    before = {version: yard.ours(version) for version in ("2", "4")}
    yard.log.upsert(B0, row(1, "under way"))
    under_way = LakeRound.plan(lake, yard.log).write(B0)
    engine.sql(f"VACUUM {yard.name}")
    with pytest.raises(AssertionError, match="retention"):
        engine.sql(f"VACUUM {yard.name} RETAIN 0 HOURS")
    under_way.commit()
    yard.check()
    assert {version: yard.ours(version) for version in before} == before


@pytest.mark.parametrize("widen", [False, True])
def test_it_reads_columns_that_changed(lake: DeltaLakeStorage, engine: JavaIceberg, widen: bool) -> None:
    log, wanted = changed_columns(lake, widen=widen)
    name = f"delta.`{lake.log(log.table.path).root}`"
    query = f"SELECT key, note, title, n, name, d FROM {name} ORDER BY key"
    names = ("key", "note", "title", "n", "name", "d")
    expected = [tuple(map(_as_json, row)) for row in wanted]
    assert [tuple(r.get(name) for name in names) for r in engine.sql(query)] == expected
    LakeRewrite(lake=lake, table=log.table).run()
    assert [tuple(r.get(name) for name in names) for r in engine.sql(query)] == expected


def _as_json(value: Any) -> Any:
    """As the engine's answer spells times; nulls are left out of it."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}.000".rjust(23, "0")
    return str(value) if isinstance(value, date) else value
