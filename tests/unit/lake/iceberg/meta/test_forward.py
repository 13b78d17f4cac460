# SPDX-License-Identifier: Apache-2.0
"""A catalog's database from an older copy: pointers go forward to the newest metadata file of the same table, or
nowhere.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from lakeward.errors import FaultInjected, LakeHistoriesDiffer, LakeMetadataGone
from lakeward.lake.iceberg.connect.forward import Forward, MetadataVersion, move_forward, plan_forward
from lakeward.lake.iceberg.meta.location import metadata_name
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward_testing.faults import Faults
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.folder import folder_lake

MARK, TABLE = "0123abcd", uuid.uuid4()
KEPT = "3"
"""Older metadata files than that go: the tables of these tests outgrow a copy within a few commits."""


# ---- the plan ----
def made(number: int, *before: MetadataVersion, at_ms: int | None = None) -> MetadataVersion:
    """A version made from `before`, whose names it knows."""
    name = metadata_name(number, MARK, TABLE)
    names = tuple(v.name for v in before)
    return MetadataVersion(
        location=f"file:///t/metadata/{name}",
        table_uuid=TABLE,
        updated_at_ms=number if at_ms is None else at_ms,
        before=names,
    )


def line(length: int, kept: int = 100) -> list[MetadataVersion]:
    """Versions 0 to `length` - 1, each knowing the last `kept` before it."""
    found: list[MetadataVersion] = []
    for number in range(length):
        found.append(made(number, *found[-kept:]))
    return found


def plan(pointer: MetadataVersion, found: list[MetadataVersion], *, here: bool = True) -> MetadataVersion | None:
    return plan_forward("shop.clicks", pointer.location, pointer if here else None, found)


def test_the_newest_that_follows_is_taken_and_nothing_older() -> None:
    versions = line(6)
    assert plan(versions[2], versions) is versions[5]
    assert plan(versions[5], versions) is None
    assert plan(versions[5], versions[:5]) is None, "never backwards"


@pytest.mark.parametrize("kept", [1, 3, 100])
def test_a_pointer_is_found_behind_any_number_of_versions(kept: int) -> None:
    versions = line(30, kept)
    assert plan(versions[2], versions) is versions[29]


def test_a_pointer_whose_file_is_gone_needs_no_proof_beyond_its_reach() -> None:
    versions = line(30, 3)
    assert plan(versions[2], versions[26:], here=False) is versions[29]


def test_a_newest_that_does_not_follow_from_the_pointer_is_refused() -> None:
    """A start without --restored went on from the copy: its own version 3 is where the catalog points."""
    versions = line(6)
    own = made(3, *versions[:3], at_ms=90)
    for here in (True, False):
        with pytest.raises(LakeHistoriesDiffer, match=own.name):
            plan(own, [*versions, own], here=here)


def test_two_of_the_highest_number_are_refused() -> None:
    versions = line(6)
    with pytest.raises(LakeHistoriesDiffer) as caught:
        plan(versions[2], [*versions, made(5, *versions[:5], at_ms=1)])
    assert "--restored" in str(caught.value)


def test_what_a_crashed_commit_left_behind_is_passed_over() -> None:
    versions = line(6)
    assert plan(versions[2], [made(4, *versions[:4], at_ms=4), *versions]) is versions[5]


def test_a_shorter_history_that_is_younger_is_refused() -> None:
    versions = line(6)
    with pytest.raises(LakeHistoriesDiffer):
        plan(versions[2], [*versions, made(3, *versions[:3], at_ms=90)])


def test_a_shorter_history_of_more_than_one_commit_is_refused() -> None:
    versions = line(6)
    first = made(3, *versions[:3], at_ms=3)
    with pytest.raises(LakeHistoriesDiffer):
        plan(versions[2], [*versions, first, made(4, *versions[:3], first, at_ms=4)])


# ---- a real catalog ----
def write(lake: IcebergLakeStorage, log: ScriptedLog, *ids: int) -> None:
    """A commit for each."""
    for number in ids:
        log.append(B0, row(number))
        LakeRound.plan(lake, log).run()


@pytest.fixture
def log(tmp_path: Path) -> ScriptedLog:
    """A table with one row, and a copy of its catalog's database."""
    with folder_lake(tmp_path) as lake:
        log = LakeSuite().make_log(lake, properties={"iceberg.write.metadata.previous-versions-max": KEPT})
        write(lake, log, 1)
    shutil.copy(tmp_path / "catalog.db", tmp_path / "copy.db")
    return log


def bring_back(folder: Path) -> None:
    shutil.copy(folder / "copy.db", folder / "catalog.db")


def location(lake: IcebergLakeStorage, log: ScriptedLog) -> str:
    return lake.connection.load(log.table.path).metadata_location


def move(lake: IcebergLakeStorage) -> list[Forward]:
    return move_forward(lake.connection)


@pytest.mark.parametrize("commits", [2, 8])
def test_a_copy_goes_forward_and_keeps_every_row(tmp_path: Path, log: ScriptedLog, commits: int) -> None:
    """After two commits the copy's file is still there, after eight it is gone."""
    with folder_lake(tmp_path) as lake:
        write(lake, log, *range(2, 2 + commits))
        newest = location(lake, log)
    bring_back(tmp_path)
    with folder_lake(tmp_path) as lake:
        (forward,) = move(lake)
        assert forward.after == location(lake, log) == newest
        assert forward.table == str(log.table.path)
        assert newest in forward.words
        assert move(lake) == [], "and there it stays"
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        write(lake, log, 100)
        assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_without_it_the_error_names_the_flag_and_the_file(tmp_path: Path, log: ScriptedLog) -> None:
    with folder_lake(tmp_path) as lake:
        old = location(lake, log)
        write(lake, log, *range(2, 10))
    bring_back(tmp_path)
    with folder_lake(tmp_path) as lake, pytest.raises(LakeMetadataGone, match="lakeward server --restored") as caught:
        lake.connection.load(log.table.path)
    assert caught.value.file == old


@pytest.mark.parametrize("keeps", [True, False])
def test_another_table_in_the_same_folder_is_never_taken(tmp_path: Path, log: ScriptedLog, keeps: bool) -> None:
    """The table was dropped since and made again under its name; its old files were kept, or purged."""
    name = (log.table.path.database, log.table.path.table)
    with folder_lake(tmp_path) as lake:
        old = location(lake, log)
        lake.connection.catalog.drop_table(name)
        again = LakeSuite().make_log(lake, properties={"iceberg.write.metadata.previous-versions-max": KEPT})
        write(lake, again, *range(1, 6))
    if not keeps:
        Path(old.removeprefix("file://")).unlink()
    bring_back(tmp_path)
    with folder_lake(tmp_path) as lake:
        found = move(lake)
        assert [f.after for f in found] == ([] if keeps else [None])
        assert all("of another table" in f.words for f in found)


def test_a_table_that_is_gone_altogether_stops_nobody(tmp_path: Path, log: ScriptedLog) -> None:
    with folder_lake(tmp_path) as lake:
        folder = Path(location(lake, log).removeprefix("file://")).parent
    shutil.rmtree(folder)
    with folder_lake(tmp_path) as lake:
        (left,) = move(lake)
        assert left.after is None
        assert "no newer one" in left.words


def test_files_of_another_catalog_are_no_candidates(tmp_path: Path, log: ScriptedLog) -> None:
    """The table is registered elsewhere and went on there, in the same folder."""
    with folder_lake(tmp_path) as lake, folder_lake(tmp_path, "other") as other:
        other.connection.catalog.create_namespace(log.table.path.database)
        other.connection.catalog.register_table((log.table.path.database, log.table.path.table), location(lake, log))
        other.catalog().set_properties(log.table, {"some.note": "theirs"})
        assert move(lake) == []


def test_a_torn_file_is_passed_over(tmp_path: Path, log: ScriptedLog) -> None:
    """The server died while it wrote it: no catalog named it."""
    with folder_lake(tmp_path) as lake:
        write(lake, log, 2, 3)
        newest = location(lake, log)
        with Faults() as faults, pytest.raises(FaultInjected):
            faults.arm("catalog.before-swap")
            lake.catalog().set_properties(log.table, {"some.note": "x"})
    (last,) = sorted(Path(newest.removeprefix("file://")).parent.glob("*.metadata.json"))[-1:]
    last.write_bytes(last.read_bytes()[:100])
    bring_back(tmp_path)
    with folder_lake(tmp_path) as lake:
        (forward,) = move(lake)
        assert forward.after == newest


def test_where_one_table_is_refused_no_other_is_moved(tmp_path: Path, log: ScriptedLog) -> None:
    """A start without --restored gave the one table a second history; the other, whose turn comes before, has one."""
    with folder_lake(tmp_path) as lake:
        clear = LakeSuite().make_log(lake, "a")
        write(lake, clear, 1)
        before = location(lake, clear)
    shutil.copy(tmp_path / "catalog.db", tmp_path / "copy.db")
    with folder_lake(tmp_path) as lake:
        write(lake, log, 2, 3)
        write(lake, clear, 2)
    bring_back(tmp_path)
    with folder_lake(tmp_path) as lake:
        for note in ("first", "second"):
            lake.catalog().set_properties(log.table, {"some.note": note})
    bring_back(tmp_path)
    with folder_lake(tmp_path) as lake:
        with pytest.raises(LakeHistoriesDiffer, match=str(log.table.path)):
            move(lake)
        assert location(lake, clear) == before
