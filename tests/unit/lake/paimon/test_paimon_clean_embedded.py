# SPDX-License-Identifier: Apache-2.0
"""Embedded tables with `table.datalake.system-columns = false` on Paimon: the lake has the user's columns alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.errors import HistoryGone, InvalidAlter
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import SYSTEM_COLUMNS_PROPERTY, Bucket, OffsetRange, TablePath
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward.protocol.tables import AlterTable
from lakeward.read.streamrows import StreamRows
from lakeward.verify import Certificate, verify_table
from lakeward.verify.certificate import CertificateVerdict
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.paimonforeign import PaimonForeignEngine
from tests.kit.inprocess import InProcessLakeward

LOG, KEYED, PK, DAILY = (TablePath("db", name) for name in ("log", "keyed", "pk", "daily"))
CLEAN: dict[str, Any] = {SYSTEM_COLUMNS_PROPERTY: "false"}


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLakeStorage:
    storage = load({"warehouse": str(tmp_path / "warehouse")})
    assert isinstance(storage, PaimonLakeStorage)
    return storage


@pytest.fixture
def world(tmp_path: Path, lake: PaimonLakeStorage) -> Iterator[InProcessLakeward]:
    made = InProcessLakeward(tmp_path / "server", lake, quarantine_after=1_000)
    made.create(str(LOG), "id bigint, v string", buckets=2, **CLEAN)
    made.create(str(KEYED), "id bigint, v string", bucket_by="id", buckets=2, **CLEAN)
    made.create(str(PK), "id bigint not null, v string", primary_key="id", buckets=2, **CLEAN)
    made.create(str(DAILY), "day string not null, id bigint", partition_by="day", buckets=2, **CLEAN)
    yield made
    made.close()


def native(lake: PaimonLakeStorage, path: TablePath) -> pa.Table:
    """As pypaimon's own reader gives it."""
    builder = lake.connection.load(path).new_read_builder()
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())


def certificate(world: InProcessLakeward, path: TablePath) -> Certificate:
    return verify_table(world.plugin, path, deep=True, open_storage=lambda _plan: world.lake)


def fill(world: InProcessLakeward, waves: int = 3) -> dict[int, str]:
    expected = dict[int, str]()
    for wave in range(waves):
        for path in (LOG, KEYED):
            world.append(str(path), [{"id": 10 * wave + n, "v": "log"} for n in range(4)])
        world.append(str(DAILY), [{"day": "ab"[n % 2], "id": 10 * wave + n} for n in range(6)])
        changed = dict.fromkeys(range(wave, 6), f"wave {wave}")
        world.upsert(str(PK), [{"id": n, "v": v} for n, v in changed.items()])
        world.delete(str(PK), [{"id": 5 - wave}])
        expected = {n: v for n, v in {**expected, **changed}.items() if n != 5 - wave}
        for path in (LOG, KEYED, PK, DAILY):
            (end,) = world.tier(str(path))
            assert isinstance(end, TableFinished), end
    return expected


def test_every_reader_sees_the_users_columns_alone(world: InProcessLakeward, lake: PaimonLakeStorage) -> None:
    expected = fill(world)
    assert [lake.takes_one_writer(world.store.load_table(p)) for p in (LOG, PK)] == [False, True]
    world.add_column(str(PK), "more int")
    world.upsert(str(PK), [{"id": 0, "v": "hot", "more": 7}])
    for path, names in ((LOG, ["id", "v"]), (PK, ["id", "v", "more"]), (DAILY, ["day", "id"])):
        assert native(lake, path).column_names == names
    assert {r["id"]: r["v"] for r in native(lake, PK).to_pylist()} == expected
    assert {r["id"]: r["v"] for r in world.read(str(PK)).to_table().to_pylist()} == {**expected, 0: "hot"}
    world.tier(str(PK))
    for path in (LOG, KEYED, DAILY):
        found = world.read(str(path), system_columns=True).to_table().to_pylist()
        partitions = {(r.get("day"), r["__bucket"], r["__offset"]) for r in found}
        assert len(partitions) == len(found) == native(lake, path).num_rows
        assert min(r["__offset"] for r in found) == 0
    found = world.read(str(PK), system_columns=True).to_table().to_pylist()
    assert {r["__offset"] for r in found} == {-1}
    assert {r["__bucket"] for r in found} == {0, 1}
    for path in (LOG, KEYED, PK, DAILY):
        checked = certificate(world, path)
        assert (checked.holds, checked.notes) == (True, ())


def test_a_compaction_changes_no_reader(world: InProcessLakeward, lake: PaimonLakeStorage) -> None:
    expected = fill(world)
    before = {
        p: sorted(map(repr, world.read(str(p), system_columns=True).to_table().to_pylist())) for p in (LOG, DAILY)
    }
    for path in (LOG, KEYED, PK, DAILY):
        table = world.store.load_table(path)
        files = lake.open_reader(table).files(LakeRewrite(lake=lake, table=table).run().snapshot_id)
        assert len(files) == len({f.bucket for f in files})
        assert certificate(world, path).holds
    for path, rows in before.items():
        assert sorted(map(repr, world.read(str(path), system_columns=True).to_table().to_pylist())) == rows
    assert {r["id"]: r["v"] for r in native(lake, PK).to_pylist()} == expected
    world.upsert(str(PK), [{"id": 1, "v": "after"}])
    world.tier(str(PK))
    assert {r["id"]: r["v"] for r in native(lake, PK).to_pylist()} == {**expected, 1: "after"}


def test_a_round_in_many_pieces_counts_its_files(tmp_path: Path, lake: PaimonLakeStorage) -> None:
    """Files of a few rows: each says the offsets of its own."""
    world = InProcessLakeward(tmp_path / "server", lake)
    small = {**CLEAN, "paimon.target-file-size": "1 kb"}
    table = world.create("db.small", "id bigint, v string", **small)
    for wave in range(3):
        for part in range(5):
            world.append("db.small", [{"id": 1000 * wave + 100 * part + n, "v": "x" * 200} for n in range(100)])
        world.tier("db.small")
    reader = lake.open_reader(table)
    head = reader.load_snapshot()
    assert head is not None
    ranges = sorted(f.offsets for f in reader.files(head.snapshot_id) if f.offsets)
    assert [r.start for r in ranges] == [0, *(r.stop for r in ranges[:-1])]
    assert ranges[-1].stop == 1_500
    rows = world.read("db.small", system_columns=True).to_table().sort_by("__offset")
    assert rows["id"].to_pylist() == [1000 * w + n for w in range(3) for n in range(500)]
    world.close()


def test_a_stream_begins_in_the_lake(tmp_path: Path, lake: PaimonLakeStorage) -> None:
    """By offset, and by a moment: times of rows are not kept, and none is passed over."""
    world = InProcessLakeward(tmp_path / "server", lake)
    table = world.create("db.daily", "day string not null, id bigint", partition_by="day", **CLEAN)
    for count in (3, 2):
        world.append("db.daily", [{"day": "a", "id": n} for n in range(count)])
        world.tier("db.daily")
    world.store.drop_partition(table, "a")
    reader, bucket = lake.open_reader(table), Bucket("a", 0)
    first, second = (s.committed_at_ms for s in reader.snapshots())
    rows = StreamRows(world.plugin, table, reader)
    assert [rows.offset_at(bucket, at, 5) for at in (first - 1, first, second)] == [0, 3, 5]
    wanted = OffsetRange(2, 5)
    assert [n for b in rows.range(bucket, wanted, ["id"]) for n in b["id"].to_pylist()] == [2, 0, 1]
    engine = PaimonForeignEngine(lake.connection, table.path)
    engine.compact()
    with pytest.raises(HistoryGone, match="offset 2"):
        list(rows.range(bucket, wanted, ["id"]))
    checked = certificate(world, table.path)
    assert (checked.verdict, checked.is_failure) == (CertificateVerdict.NOT_CHECKED, True)
    assert "5 rows, which were counted and not compared (another engine wrote 1 of its files" in checked.beyond[0]
    engine.insert(pa.Table.from_pylist([{"day": "a", "id": 9}], engine.schema()))
    assert not certificate(world, table.path).holds
    world.close()


@pytest.mark.parametrize("choice", ["stop", "remove"])
def test_rows_that_another_engine_inserts_are_noticed_by_their_files(
    tmp_path: Path, lake: PaimonLakeStorage, choice: str
) -> None:
    world = InProcessLakeward(tmp_path / "server", lake, quarantine_after=1_000)
    properties = {**CLEAN, "table.datalake.foreign-rows": choice}
    world.create(str(PK), "id bigint not null, v string", primary_key="id", **properties)
    world.upsert(str(PK), [{"id": n, "v": "ours"} for n in range(3)])
    world.tier(str(PK))
    engine = PaimonForeignEngine(lake.connection, PK)
    kinds = pa.schema([*engine.schema(), pa.field("_VALUE_KIND", pa.int8())])
    engine.insert(pa.Table.from_pylist([{"id": 1, "v": "theirs", "_VALUE_KIND": 0}], kinds))
    world.upsert(str(PK), [{"id": 2, "v": "later"}])
    (end,) = world.tier(str(PK))
    if choice == "stop":
        assert isinstance(end, TableFailed)
        assert end.error["code"] == "foreign-rows-found"
    else:
        assert isinstance(end, TableFinished)
        assert certificate(world, PK).holds
        assert {r["id"]: r["v"] for r in native(lake, PK).to_pylist()} == {0: "ours", 1: "ours", 2: "later"}
    world.close()


def test_it_is_fixed_when_the_table_is_made(world: InProcessLakeward) -> None:
    with pytest.raises(InvalidAlter, match=r"table\.datalake\.system-columns.*fixed when the table is created"):
        world.federation.alter(LOG, AlterTable(properties={SYSTEM_COLUMNS_PROPERTY: "true"}))
