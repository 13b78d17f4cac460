# SPDX-License-Identifier: Apache-2.0
"""One server per folder, format versions, migration after a copy, and the folder that an earlier version made."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.errors import (
    BucketStopped,
    DataFolderLocked,
    DataFolderUnusable,
    DataFolderVersion,
    FaultInjected,
    UnsafePath,
)
from lakeward.hot.embedded.datafolder import FORMAT_VERSION, DataFolder, find_version
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import OFFSET, Bucket, TablePath
from lakeward_testing.faults import Faults
from tests.unit.hot.embedded.yard import B0, Yard, rows

FIXTURE = Path(__file__).parents[3] / "fixtures" / "hot-store-format-1"


def test_a_second_store_on_the_folder_is_refused(yard: Yard, store: EmbeddedStore) -> None:
    with pytest.raises(DataFolderLocked, match="in use by process"):
        yard.open()
    store.close()
    yard.open()


def test_a_start_that_fails_lets_go_of_the_folder(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1))
    store.close()
    with Faults() as faults, pytest.raises(sqlite3.OperationalError):
        faults.arm("hotlog.open", error=lambda: sqlite3.OperationalError("disk I/O error"))
        yard.open()
    assert yard.open().load_tables() == [table]


def test_an_end_that_fails_lets_go_of_the_folder(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(properties={"table.log.fsync": "interval"})
    store.create_table(table)
    store.append(table, B0, rows(1))
    with Faults() as faults, pytest.raises(BucketStopped):
        faults.arm("hotlog.before-fsync", error=lambda: OSError("disk I/O error"))
        store.close()
    assert yard.open().load_tables() == [table]


def test_a_newer_folder_is_refused_naming_both_versions(yard: Yard) -> None:
    yard.folder.mkdir()
    (yard.folder / "format.json").write_text(json.dumps({"version": FORMAT_VERSION + 1}))
    with pytest.raises(DataFolderVersion) as caught:
        yard.open()
    assert (caught.value.found, caught.value.known) == (FORMAT_VERSION + 1, FORMAT_VERSION)
    assert [p.name for p in yard.folder.iterdir() if p.name != "lock"] == ["format.json"]


def test_an_older_folder_is_migrated_step_by_step_after_a_copy(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "remote").mkdir(parents=True)
    (folder / "remote" / "segment").write_text("never rewritten")
    (folder / "rows").write_text("v1")
    (folder / "format.json").write_text(json.dumps({"version": 1}))
    steps: dict[int, Callable[[Path], None]] = {1: _writes("v2"), 2: _writes("v3")}
    with Faults() as faults:
        faults.arm("datafolder.before-migration", hit=2)
        with pytest.raises(FaultInjected):
            DataFolder.open(folder, version=3, migrations=steps)
    assert find_version(folder) == 2, "the first step was completed"
    DataFolder.open(folder, version=3, migrations=steps).close()
    copy = tmp_path / "data.format-1"
    assert ((folder / "rows").read_text(), find_version(folder)) == ("v3", 3)
    assert ((copy / "rows").read_text(), find_version(copy)) == ("v1", 1)
    assert (copy / "remote" / "segment").read_text() == "never rewritten"


def test_a_folder_made_by_format_1_opens(yard: Yard) -> None:
    """Later versions must read what this one left: two tables, several segments, a schema change, a remote tier,
    writers.
    """
    shutil.copytree(FIXTURE, yard.folder)
    store = yard.open()
    log, keyed = store.load_table(TablePath("shop", "orders")), store.load_table(TablePath("shop", "stock"))
    expected = json.loads((FIXTURE / "expected.json").read_text())
    bounds = store.freeze(log)[B0]
    found = (
        pa.Table.from_batches(store.read_log(log, B0, bounds.start, bounds.end))
        .select(["id", "text", "extra", OFFSET])
        .to_pylist()
    )
    assert found == expected["orders"]
    looked_up = store.lookup(keyed, B0, pa.record_batch({"id": pa.array([1, 2, 3], pa.int64())}))
    assert looked_up.select(["id", "text", OFFSET]).to_pylist() == expected["stock"]
    assert store.append(log, B0, rows(1), WriterSequence(11, expected["sequence"])).duplicate
    assert store.append(log, Bucket("", 1), rows(1)).start == expected["end of bucket 1"]


def _writes(text: str) -> Callable[[Path], None]:
    def migrate(folder: Path) -> None:
        (folder / "rows").write_text(text)

    return migrate


def test_only_folders_inside_are_deleted(tmp_path: Path) -> None:
    """Not one beside it, not the whole, and nothing that a link leads to."""
    victim = tmp_path / "victim" / "p0"
    victim.mkdir(parents=True)
    folder = DataFolder.open(tmp_path / "data")
    inside = folder.tables / "t" / "p0"
    inside.mkdir(parents=True)
    (folder.tables / "linked").symlink_to(victim.parent)
    for path in (
        folder.tables / ".." / ".." / "victim",
        tmp_path / "victim",
        folder.tables,
        folder.path,
        folder.tables / "linked",
        folder.tables / "linked" / "p0",
    ):
        with pytest.raises(UnsafePath, match="nothing there was touched"):
            folder.remove(path)
    assert victim.is_dir()
    assert inside.is_dir()
    folder.remove(inside.parent)
    folder.remove(inside.parent)
    assert not inside.parent.exists()
    folder.close()


def test_a_tables_folder_has_a_name_that_was_drawn_here(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1, 2, 3))
    (folder,) = (yard.folder / "tables").iterdir()
    assert folder.name != table.table_id
    store.close()
    again = yard.open()
    assert again.freeze(table)[B0].end == 3
    again.drop_table(table.path)
    assert not folder.exists()


def test_a_stored_table_whose_id_is_none_is_left_out_by_name(
    yard: Yard, store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = yard.table("good"), yard.table("bad")
    store.create_table(good)
    store.create_table(bad)
    store.close()
    with sqlite3.connect(yard.folder / "meta.db") as db:
        db.execute("UPDATE tables SET info = replace(info, ?, '../../victim') WHERE path = 'db.bad'", (bad.table_id,))
        dropped = "INSERT INTO partitions (table_id, name, created_at_ms, dropping) VALUES ('../../victim', 'p', 1, 1)"
        db.execute(dropped)
    db.close()
    again = yard.open()
    assert [t.path for t in again.load_tables()] == [good.path]
    assert "../../victim" in caplog.text
    again.upkeep.finish_drops()
    named = "\n".join(again.left_out())
    assert ("table db.bad is left out" in named, "partition of table ../../victim" in named) == (True, True), named


def test_a_folder_that_cannot_be_written_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderUnusable, match=r"cannot be used by user \w+: Not a directory; give that user"):
        DataFolder.open(tmp_path / "file" / "data")
