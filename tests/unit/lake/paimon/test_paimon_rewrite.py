# SPDX-License-Identifier: Apache-2.0
"""Rewrites of Paimon tables: which rows and deletes stay, where files go; manifests that do not pile up."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.lake.paimon.meta.history import PaimonHistory
from lakeward.lake.paimon.meta.manifests import Manifests
from lakeward.lake.paimon.newsnapshot import plan_merge
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.scan.datafile import KIND, SEQUENCE, merge_by_key
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import OFFSET
from lakeward.spi import LakeFile
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.paimonforeign import PaimonForeignEngine
from lakeward_testing.scripted_log import ScriptedLog

SUITE = LakeSuite()
PK: dict[str, Any] = {"primary_key": ("id",), "bucket_keys": ("id",)}


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLakeStorage:
    storage = load({"warehouse": str(tmp_path / "warehouse")})
    assert isinstance(storage, PaimonLakeStorage)
    return storage


def files(lake: PaimonLakeStorage, log: ScriptedLog) -> list[LakeFile]:
    reader = lake.open_reader(log.table)
    head = reader.load_snapshot()
    assert head is not None
    return sorted(reader.files(head.snapshot_id), key=lambda f: f.offsets.start if f.offsets else -1)


def levels(lake: PaimonLakeStorage, log: ScriptedLog) -> list[tuple[int, int]]:
    """Level and rows of each live file."""
    table = lake.connection.load(log.table.path)
    live = Manifests(table).live(PaimonHistory.load(table, "t").head)
    return sorted((e.file.level, e.file.row_count) for e in live)


def part(rewrite: LakeRewrite, chosen: list[LakeFile]) -> LakeRewrite:
    rewrite.groups = [replace(rewrite.groups[0], files=tuple(chosen))]
    return rewrite


def test_a_delete_stays_as_long_as_an_older_file_may_have_its_row(lake: PaimonLakeStorage) -> None:
    log = SUITE.make_log(lake, **PK)
    log.upsert(B0, row(1), row(2))
    LakeRound.plan(lake, log).run()
    log.delete(B0, row(1))
    LakeRound.plan(lake, log).run()
    log.upsert(B0, row(3))
    LakeRound.plan(lake, log).run()
    part(LakeRewrite(lake=lake, table=log.table), files(lake, log)[1:]).run()
    assert levels(lake, log) == [(0, 2), (0, 2)]
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    LakeRewrite(lake=lake, table=log.table).run()
    assert levels(lake, log) == [(5, 2)]
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_the_oldest_files_go_to_the_top_level_without_their_deletes(lake: PaimonLakeStorage) -> None:
    log = SUITE.make_log(lake, **PK)
    log.upsert(B0, row(1), row(2))
    LakeRound.plan(lake, log).run()
    log.delete(B0, row(1))
    LakeRound.plan(lake, log).run()
    log.upsert(B0, row(2, "new"))
    LakeRound.plan(lake, log).run()
    part(LakeRewrite(lake=lake, table=log.table), files(lake, log)[:2]).run()
    assert levels(lake, log) == [(0, 1), (5, 1)]
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_an_engine_may_scan_a_pk_bucket_by_itself_once_it_is_one_file(lake: PaimonLakeStorage) -> None:
    log = SUITE.make_log(lake, **PK)
    for name in ("a", "b"):
        log.upsert(B0, row(1, name))
        log.upsert(B1, row(2, name))
        LakeRound.plan(lake, log).run()
    assert {f.is_reader_needed for f in files(lake, log)} == {True}
    LakeRewrite(lake=lake, table=log.table, buckets=(B0,)).run()
    needed = sorted((f.bucket, f.is_reader_needed) for f in files(lake, log) if f.bucket is not None)
    assert needed == [(B0, False), (B1, True), (B1, True)]


@pytest.mark.parametrize(
    ("kind", "needed"),
    [("TIMESTAMP(6)", False), ("TIME(3)", True), ("ARRAY<ROW<at TIME(0)>>", True)],
)
def test_nor_may_it_where_values_are_stored_as_few_engines_read_them(
    lake: PaimonLakeStorage, kind: str, needed: bool
) -> None:
    log = SUITE.make_log(lake, columns={"id": "BIGINT NOT NULL", "v": kind})
    log.append(B0, {"id": 1, "v": None})
    LakeRound.plan(lake, log).run()
    assert [f.is_reader_needed for f in files(lake, log)] == [needed]


def test_a_rewrite_takes_no_rows_of_others_in(lake: PaimonLakeStorage) -> None:
    """The round that comes next could not tell them apart any more."""
    log = SUITE.make_log(lake, **PK, properties={"table.datalake.foreign-rows": "remove"})
    log.upsert(B0, row(1))
    log.upsert(B1, row(2))
    LakeRound.plan(lake, log).run()
    engine = PaimonForeignEngine(lake.connection, log.table.path)
    engine.insert(pa.Table.from_pylist([{**row(9), "__bucket": 0, OFFSET: 5, "__timestamp": 0}], engine.schema()))
    rewrite = LakeRewrite(lake=lake, table=log.table).write()
    prepared = rewrite.prepare()
    assert prepared.left_out == (0,)
    rewrite.commit(prepared)
    log.upsert(B0, row(3))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_small_table_stays_one_row_group_a_file_however_often_it_is_rewritten(lake: PaimonLakeStorage) -> None:
    """Each one more is one more batch for every reader."""
    log = SUITE.make_log(lake, **PK)
    for number in range(12):
        log.upsert(B0, *(row(n, str(number)) for n in range(number, 40, 3)))
        LakeRound.plan(lake, log).run()
        if number % 4 == 3:
            LakeRewrite(lake=lake, table=log.table).run()
    (file,) = files(lake, log)
    assert pq.ParquetFile(file.path).metadata.num_row_groups == 1
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_manifests_do_not_pile_up_and_name_the_same_files(lake: PaimonLakeStorage) -> None:
    log = SUITE.make_log(lake)
    for number in range(40):
        log.append(B0, row(number))
        LakeRound.plan(lake, log).run()
        if number % 10 == 9:
            LakeRewrite(lake=lake, table=log.table).run()
    table = lake.connection.load(log.table.path)
    manifests, history = Manifests(table), PaimonHistory.load(table, "t")
    assert len(manifests.metas(history.head)) < 20
    assert len(manifests.live(history.head)) == 1
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    for shown in lake.open_reader(log.table).snapshots():
        assert shown.offsets is not None
        assert lake_rows(lake, log.table, shown.snapshot_id) == log.expected(shown.offsets)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=400))
def test_few_manifests_are_left_and_entries_are_written_seldom(commits: list[int]) -> None:
    manifests, written = list[int](), 0
    for entries in commits:
        first = plan_merge(manifests)
        if first < len(manifests):
            written += sum(manifests[first:])
            manifests[first:] = [sum(manifests[first:])]
        manifests.append(entries)
    classes = 1
    while 8**classes <= sum(commits):
        classes += 1
    assert len(manifests) <= 8 * classes + 1
    assert written <= classes * sum(commits)


@st.composite
def sorted_files(draw: st.DrawFn) -> list[list[list[dict[str, int]]]]:
    """Files of batches of rows; in a file each key once, ascending. Offsets are unique."""
    offsets = draw(st.permutations(range(60)))
    found, taken = [], iter(offsets)
    for _ in range(draw(st.integers(1, 4))):
        keys = sorted(draw(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12)))
        rows = [
            {"a": a, "b": b, OFFSET: o, SEQUENCE: 0, KIND: draw(st.sampled_from([0, 2, 3]))}
            for (a, b), o in zip(keys, taken, strict=False)
        ]
        cuts = sorted(draw(st.sets(st.integers(1, 11), max_size=4)))
        found.append([rows[i:j] for i, j in itertools.pairwise([0, *cuts, len(rows)]) if rows[i:j]])
    return found


@given(sorted_files())
def test_a_merge_by_key_equals_a_dict(found: list[list[list[dict[str, int]]]]) -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.int64(), OFFSET: pa.int64(), SEQUENCE: pa.int64(), KIND: pa.int8()})
    newest: dict[tuple[int, int], dict[str, int]] = {}
    for r in (r for file in found for batch in file for r in batch):
        key = r["a"], r["b"]
        newest[key] = max(r, newest.get(key, r), key=lambda x: x[OFFSET])
    merged = merge_by_key([(pa.Table.from_pylist(b, schema) for b in file) for file in found], ["a", "b"])
    assert [r for rows in merged for r in rows.to_pylist()] == [newest[k] for k in sorted(newest)]


def changelog(lake: PaimonLakeStorage, log: ScriptedLog) -> list[list[tuple[int, int, str]]]:
    """Kind, id and name of each change, by snapshot; none where a snapshot has no changelog."""
    table = lake.connection.load(log.table.path)
    manifests, history = Manifests(table), PaimonHistory.load(table, "t")
    found = []
    for snapshot in reversed(list(history.newest_first())):
        name = snapshot.body.get("changelogManifestList")
        paths = sorted(manifests.reach([name]).content) if name else []
        rows = [r for path in paths for r in pq.read_table(path, partitioning=None).to_pylist()]
        found.append(sorted((r[KIND], r["id"], r["name"]) for r in rows))
    return found


def test_with_a_changelog_readers_get_every_change_and_no_rewrite_repeats_one(lake: PaimonLakeStorage) -> None:
    log = SUITE.make_log(lake, **PK, properties={"paimon.changelog-producer": "input"})
    log.upsert(B0, row(1, "a"), row(2, "b"))
    LakeRound.plan(lake, log).run()
    log.upsert(B0, row(1, "c"))
    log.delete(B0, row(2, "b"))
    LakeRound.plan(lake, log).run()
    LakeRewrite(lake=lake, table=log.table).run()
    assert changelog(lake, log) == [
        [(0, 1, "a"), (0, 2, "b")],
        [(1, 1, "a"), (2, 1, "c"), (3, 2, "b")],
        [],
    ]
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    upkeep = lake.open_maintenance(log.table)
    stored = {f.path for f in upkeep.list_files()}
    assert len([p for p in stored if "/changelog-" in p]) == 2
    assert stored <= upkeep.references()
