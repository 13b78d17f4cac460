# SPDX-License-Identifier: Apache-2.0
"""Lance tables as others read and change them: the library itself and DuckDB, with deletions, indexes, the past."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import lance
import pyarrow as pa
import pytest

from lakeward.errors import LakeTableGone
from lakeward.lake.lance.plugin import open_lake
from lakeward.lake.lance.storage import LanceLakeStorage
from lakeward.model import Column, SnapshotId, parse_type
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.suite import B0, B1, COLUMNS, LakeSuite, row
from lakeward_testing.lakes.upserts import change_randomly
from lakeward_testing.lanceforeign import LanceForeignEngine
from lakeward_testing.scripted_log import ScriptedLog

Rows = list[tuple[Any, ...]]
NAMES = ["__bucket", "__offset", "id", "name", "amount"]


def library(root: str) -> Rows:
    rows = lance.dataset(root).to_table(columns=NAMES).sort_by([("__bucket", "ascending"), ("__offset", "ascending")])
    return [tuple(r.values()) for r in rows.to_pylist()]


def duck(root: str) -> Rows:
    folder = Path(str(importlib.import_module("duckdb_extension_lance").__file__)).parent
    (file,) = folder.glob("extensions/*/*.duckdb_extension")
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.execute(f"LOAD '{file}'")
        return list(connection.sql(f"SELECT {', '.join(NAMES)} FROM '{root}' ORDER BY 1, 2").fetchall())


@pytest.fixture
def lake(tmp_path: Path) -> LanceLakeStorage:
    return open_lake({"warehouse": str(tmp_path)})


def root_of(lake: LanceLakeStorage, log: ScriptedLog) -> str:
    return lake.table(log.table.path).root


def run_rounds(lake: LanceLakeStorage, log: ScriptedLog, chance: Random, rounds: int) -> None:
    for _ in range(rounds):
        change_randomly(log, chance, 12)
        LakeRound.plan(lake, log).run()


def wanted(log: ScriptedLog) -> Rows:
    return [(b.number, offset, *(r[n] for n in NAMES[2:])) for b, offset, r in log.expected(log.ends())]


@pytest.mark.parametrize("reader", [library, duck])
def test_upserts_and_a_rewrite_are_read(lake: LanceLakeStorage, reader: Callable[[str], Rows]) -> None:
    log, chance = LakeSuite().make_log(lake, primary_key=("id",)), Random(8)
    run_rounds(lake, log, chance, 5)
    head = lake.open_reader(log.table).load_base().head
    assert head is not None
    assert any(f.deletes for f in lake.open_reader(log.table).files(head))
    assert reader(root_of(lake, log)) == wanted(log)
    LakeRewrite(lake=lake, table=log.table).run()
    assert reader(root_of(lake, log)) == wanted(log)


def test_rounds_go_on_after_the_librarys_compaction_clean_up_and_index(lake: LanceLakeStorage) -> None:
    """Its compaction puts rows of both buckets into one fragment; they are found there, and so are replaced ones."""
    log, chance = LakeSuite().make_log(lake, primary_key=("id",)), Random(9)
    run_rounds(lake, log, chance, 3)
    engine = LanceForeignEngine(lake.table(log.table.path))
    engine.open().create_scalar_index("id", "BTREE")
    for deed in (engine.compact, engine.clean_up):
        deed()
        reader = lake.open_reader(log.table)
        head = reader.load_snapshot()
        assert head is not None
        assert None in {f.bucket for f in reader.files(head.snapshot_id)}
        assert library(root_of(lake, log)) == wanted(log)
        run_rounds(lake, log, chance, 2)
        assert library(root_of(lake, log)) == duck(root_of(lake, log)) == wanted(log)
    LakeRewrite(lake=lake, table=log.table).run()
    assert library(root_of(lake, log)) == wanted(log)
    (key, *_) = log.expected(log.ends())[0][2].values()
    found = engine.open().to_table(filter=f"id = {key}", columns=["id"]).column("id").to_pylist()
    assert found == [r[2] for r in wanted(log) if r[2] == key]


VECTORS = {**COLUMNS, "spot": "VECTOR(4)"}


def test_a_vector_index_of_the_library_stays_good_over_rounds_and_a_rewrite(lake: LanceLakeStorage) -> None:
    """Built beside a round that lands meanwhile, and extended by the library; every search finds what a look at all
    rows finds: no replaced row, no deleted one, and those that came since."""
    log, chance = LakeSuite().make_log(lake, primary_key=("id",), columns=VECTORS), Random(10)
    engine = LanceForeignEngine(lake.table(log.table.path))

    def run_round() -> None:
        for _ in range(40):
            bucket, number = chance.choice((B0, B1)), chance.randrange(400)
            if chance.random() < 0.2:
                log.delete(bucket, row(number))
            else:
                log.upsert(bucket, row(number, spot=[chance.random() for _ in range(4)]))
        LakeRound.plan(lake, log).run()

    def check(*, is_indexed: bool = True) -> None:
        dataset = engine.open()
        expected = [(r["id"], r["spot"]) for _, _, r in log.expected(log.ends())]
        for _ in range(5):
            spot = [chance.random() for _ in range(4)]
            search = dataset.scanner(["id", "_distance"], nearest={"column": "spot", "q": spot, "k": 10, "nprobes": 4})
            near = sorted(expected, key=lambda r: sum((a - b) ** 2 for a, b in zip(r[1], spot, strict=True)))
            assert search.to_table()["id"].to_pylist() == [i for i, _ in near[:10]]
            assert ("ANNSubIndex: name=spot_idx" in search.explain_plan()) is is_indexed

    for _ in range(8):
        run_round()
    planned = engine.open()
    run_round()
    planned.create_index("spot", "IVF_FLAT", num_partitions=4)
    check()
    for _ in range(3):
        run_round()
        check()
    LakeRewrite(lake=lake, table=log.table).run()
    check(is_indexed=False)  # what was rewritten is searched by itself, until the library takes it up again
    engine.open().optimize.optimize_indices()
    run_round()
    check()
    assert [r[:2] for r in lake_rows(lake, log.table)] == [r[:2] for r in log.expected(log.ends())]


def test_an_added_column_comes_before_ours_and_the_past_stays_readable(lake: LanceLakeStorage) -> None:
    log = LakeSuite().make_log(lake)
    log.append(B0, row(1))
    first = LakeRound.plan(lake, log).run()
    added = [Column(name=n, type=parse_type(t)) for n, t in (("more", "ROW<x INT, y ARRAY<INT>>"), ("last", "INT"))]
    lake.catalog().add_columns(log.table, added)
    descriptor = log.table.descriptor
    log.table = log.table.with_descriptor(type(descriptor)(schema=descriptor.schema.with_added(added), bucket_count=2))
    log.append(B1, row(2, more={"x": 1, "y": [1, None]}, last=3))
    LakeRound.plan(lake, log).run()
    dataset = lance.dataset(root_of(lake, log))
    assert dataset.schema.names == ["id", "name", "amount", "more", "last", "__bucket", "__offset", "__timestamp"]
    found = dataset.to_table(columns=["id", "more", "last"]).sort_by("id").to_pylist()
    assert found == [{"id": 1, "more": None, "last": None}, {"id": 2, "more": {"x": 1, "y": [1, None]}, "last": 3}]
    assert lance.dataset(root_of(lake, log), version=int(first.snapshot_id)).count_rows() == 1
    LakeRewrite(lake=lake, table=log.table).run()
    assert [r["last"] for _, _, r in lake_rows(lake, log.table)] == [None, 3]


def test_a_deletion_of_others_that_is_dense_is_merged_with_ours(lake: LanceLakeStorage) -> None:
    """The library writes many positions as a bitmap."""
    log = LakeSuite().make_log(lake, primary_key=("id",))
    log.upsert(B0, *(row(i) for i in range(12_000)))
    LakeRound.plan(lake, log).run()
    engine = LanceForeignEngine(lake.table(log.table.path))
    engine.open().delete("id < 10000")
    (deletion,) = {f.metadata.deletion_file.file_type for f in engine.open().get_fragments()}
    assert deletion == "bitmap"
    log.upsert(B0, row(11_000, "new"), row(1, "back"))
    LakeRound.plan(lake, log).run()
    found = engine.open().to_table(columns=["id", "name"])
    assert found.num_rows == 2001
    assert found.filter(pa.compute.is_in(found["id"], pa.array([1, 11_000]))).sort_by("id").to_pylist() == [
        {"id": 1, "name": "back"},
        {"id": 11_000, "name": "new"},
    ]


def test_a_row_that_others_deleted_and_compacted_away_may_be_replaced(lake: LanceLakeStorage) -> None:
    log = LakeSuite().make_log(lake, primary_key=("id",))
    log.upsert(B0, row(1), row(2))
    LakeRound.plan(lake, log).run()
    engine = LanceForeignEngine(lake.table(log.table.path))
    engine.open().delete("id = 1")
    engine.compact()
    assert engine.open().count_rows() == sum(f.physical_rows for f in engine.open().get_fragments()) == 1
    log.upsert(B0, row(1, "back"))
    LakeRound.plan(lake, log).run()
    assert library(root_of(lake, log)) == wanted(log)


def test_a_table_that_took_the_place_of_another_is_read_anew(lake: LanceLakeStorage) -> None:
    """What a process has read of versions is another table's then."""
    log, chance = LakeSuite().make_log(lake, primary_key=("id",)), Random(11)
    run_rounds(lake, log, chance, 3)
    shutil.rmtree(root_of(lake, log))
    with pytest.raises(LakeTableGone):
        lake.open_reader(log.table).load_base()
    anew = LakeSuite().make_log(lake, primary_key=("id",))
    run_rounds(lake, anew, chance, 4)
    assert lake.open_reader(anew.table).load_base().offsets == anew.ends()
    assert lake_rows(lake, anew.table) == anew.expected(anew.ends())


def test_a_version_that_comes_late_to_a_cleaned_place_takes_itself_away(lake: LanceLakeStorage) -> None:
    log = LakeSuite().make_log(lake)
    log.append(B0, row(1))
    LakeRound.plan(lake, log).run()
    table = lake.table(log.table.path)
    with table.stage(table.newest()) as staged:
        late = table.newest() + 1
        lance.LanceDataset.commit(staged, lance.LanceOperation.Append([]), read_version=late - 1)
        for number in (2, 3, 4):
            log.append(B0, row(number))
            LakeRound.plan(lake, log).run()
        upkeep = lake.open_maintenance(log.table)
        upkeep.expire([SnapshotId(str(late))])
        assert late not in table.versions()
        assert not table.publish(staged, late)
    assert late not in table.versions()
    assert lake_rows(lake, log.table) == log.expected(log.ends())
