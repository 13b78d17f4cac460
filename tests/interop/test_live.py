# SPDX-License-Identifier: Apache-2.0
"""The live warehouse's rules: who is refused, which moment is shown, what is reused, and when files go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import ForbiddenError

from lakeward.lake.iceberg.commit.newsnapshot import LIVE_IDS
from lakeward.model import SystemClock, TablePath
from lakeward.protocol.operate import ResyncChoice
from lakeward.protocol.tables import AlterTable
from lakeward.server.live.table import COMPLETE_KEY, LiveLimits
from lakeward.server.show.metrics import live_metrics
from lakeward_testing.clock import ManualClock
from tests.kit.iceberg.engines import duckdb_connection
from tests.oracle.liveworld import LiveWorld, live_world

COLUMNS = "id bigint not null, v string"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
def world(tmp_path: Path, clock: ManualClock) -> Iterator[LiveWorld]:
    with live_world(tmp_path, hold_s=1.0, keep_s=60, clock=clock) as world:
        world.lakeward.create("db.a", COLUMNS, primary_key="id")
        world.lakeward.create("db.b", COLUMNS)
        yield world


def load(world: LiveWorld, table: str, warehouse: str = "live", **headers: str) -> dict[str, Any]:
    named = {k.replace("_", "-"): v for k, v in headers.items()}
    response = httpx.get(f"{world.url}/v1/{warehouse}/namespaces/db/tables/{table}", headers=named)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def count(world: LiveWorld, table: str, warehouse: str = "live") -> int:
    catalog = load_catalog("x", type="rest", uri=world.url, warehouse=warehouse)
    return int(catalog.load_table(f"db.{table}").scan().to_arrow().num_rows)


def rows(*ids: int, v: str = "v") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


def live_files(folder: Path) -> set[str]:
    return {p.name for p in folder.rglob("lw-live-*")}


def test_duckdb_alone_sees_a_row_that_no_round_has_moved(world: LiveWorld) -> None:
    world.lakeward.upsert("db.a", rows(1))
    with duckdb_connection() as engine:
        engine.execute(f"ATTACH 'live' AS fresh (TYPE iceberg, ENDPOINT '{world.url}', AUTHORIZATION_TYPE 'none')")
        assert engine.execute("SELECT id, v FROM fresh.db.a").fetchall() == [(1, "v")]
    assert count(world, "a", "default") == 0


def test_loads_within_the_hold_show_all_tables_at_one_moment(world: LiveWorld, clock: ManualClock) -> None:
    world.lakeward.upsert("db.a", rows(1))
    world.lakeward.append("db.b", rows(1))
    assert count(world, "a") == 1
    world.lakeward.append("db.b", rows(2, 3))
    assert count(world, "b") == 1
    clock.advance(1.0)
    assert count(world, "b") == 3


def test_a_round_that_lands_within_the_hold_does_not_move_the_moment(world: LiveWorld, clock: ManualClock) -> None:
    world.lakeward.append("db.b", rows(1))
    world.lakeward.tier("db.b")
    assert count(world, "a") == 0
    world.lakeward.append("db.b", rows(2))
    world.lakeward.tier("db.b")
    assert count(world, "b", "default") == 2
    assert count(world, "b") == 1, "the head has a row from after the moment; its parent has none"
    clock.advance(1.0)
    assert count(world, "b") == 2


def test_a_writers_token_is_covered_by_header_and_by_warehouse(world: LiveWorld) -> None:
    assert count(world, "a") == 0
    token = str(world.lakeward.upsert("db.a", rows(1)))
    assert count(world, "a") == 0, "the hold"
    assert count(world, "a", f"live;at-least={token}") == 1
    again = str(world.lakeward.upsert("db.a", rows(2)))
    summary = load(world, "a", x_lakeward_at_least=again)["metadata"]["snapshots"][-1]["summary"]
    assert summary["lakeward.total-rows"] == "2"
    refused = httpx.get(f"{world.url}/v1/live/namespaces/db/tables/a", headers={"x-lakeward-at-least": "nonsense"})
    assert refused.status_code == 400


def test_an_answer_that_has_not_changed_is_not_sent_again(world: LiveWorld, clock: ManualClock) -> None:
    url = f"{world.url}/v1/live/namespaces/db/tables/a"
    world.lakeward.upsert("db.a", rows(1))
    tag = httpx.get(url).headers["etag"]
    clock.advance(5)
    assert httpx.get(url, headers={"If-None-Match": tag}).status_code == 304
    world.lakeward.upsert("db.a", rows(2))
    clock.advance(5)
    assert httpx.get(url, headers={"If-None-Match": tag}).headers["etag"] != tag


def test_ids_of_live_snapshots_never_meet_real_ones_and_the_last_ones_stay(
    world: LiveWorld, clock: ManualClock
) -> None:
    seen: list[int] = []
    for number in range(8):
        world.lakeward.upsert("db.a", rows(number))
        clock.advance(2)
        metadata = load(world, "a")["metadata"]
        known = {s["snapshot-id"] for s in metadata["snapshots"]}
        assert set(seen[-4:]) <= known
        seen.append(metadata["current-snapshot-id"])
        assert metadata["refs"]["main"]["snapshot-id"] == seen[-1] > LIVE_IDS
        times = [s["timestamp-ms"] for s in metadata["snapshots"]]
        assert times == sorted(times)
    assert len(set(seen)) == 8
    world.lakeward.tier("db.a")
    real = load_catalog("x", type="rest", uri=world.url).load_table("db.a").metadata.snapshots
    assert real
    assert all(s.snapshot_id <= LIVE_IDS for s in real)


def test_a_tail_is_written_once_and_merged_as_it_grows(world: LiveWorld, clock: ManualClock, tmp_path: Path) -> None:
    written: set[str] = set()
    for number in range(16):
        world.lakeward.append("db.b", rows(number))
        clock.advance(2)
        assert count(world, "b") == number + 1
        written |= {name for name in live_files(tmp_path) if name.endswith(".parquet")}
    assert len(written) == 16, "one file for each load"
    table = load_catalog("x", type="rest", uri=world.url, warehouse="live").load_table("db.b")
    assert len(list(table.scan().plan_files())) <= 5, "log2 of the tail's length"


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_load_writes_what_is_new_and_reuses_deletes_and_manifests(
    world: LiveWorld, clock: ManualClock, tmp_path: Path, version: str
) -> None:
    world.lakeward.create("db.c", COLUMNS, primary_key="id", buckets=2, **{"iceberg.format-version": version})
    for start in range(0, 300, 100):
        world.lakeward.upsert("db.c", rows(*range(start, start + 100)))
        world.lakeward.tier("db.c")
    world.lakeward.upsert("db.c", rows(*range(250), v="tail"))
    clock.advance(2)
    first = load(world, "c")
    before = live_files(tmp_path)
    world.lakeward.upsert("db.c", rows(299, 0, v="new"))
    clock.advance(2)
    second = load(world, "c")
    fresh = live_files(tmp_path) - before
    assert {snapshot_of(first)["parent-snapshot-id"]} == {snapshot_of(second)["parent-snapshot-id"]}
    table = load_catalog("x", type="rest", uri=world.url, warehouse="live").load_table("db.c")
    deletes = table.inspect.delete_files().to_pylist()
    new = [d for d in deletes if Path(d["file_path"]).name in fresh]
    if version == "2":
        assert sum(d["record_count"] for d in new) == 2, "of 252 positions those of the new rows are written"
        assert sum(d["record_count"] for d in deletes) == 252
    assert len([n for n in fresh if n.endswith((".parquet", ".puffin"))]) <= 4, "of a bucket: rows, and their deletes"
    values = table.scan().to_arrow().to_pylist()
    assert sorted(r["v"] for r in values) == sorted(["new"] * 2 + ["tail"] * 249 + ["v"] * 49)


def snapshot_of(answer: dict[str, Any]) -> dict[str, Any]:
    metadata = answer["metadata"]
    found: dict[str, Any] = next(
        s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"]
    )
    return found


def test_files_of_a_table_that_nobody_loads_go_as_well(world: LiveWorld, clock: ManualClock, tmp_path: Path) -> None:
    world.lakeward.append("db.b", rows(1))
    assert count(world, "b") == 1
    clock.advance(61)
    world.live.sweep()
    assert live_files(tmp_path), "their time begins when the answer is forgotten"
    clock.advance(61)
    world.live.sweep()
    assert live_files(tmp_path) == set()
    assert count(world, "b") == 1


def test_files_of_a_dropped_table_whose_lake_table_stays_go(
    world: LiveWorld, clock: ManualClock, tmp_path: Path
) -> None:
    parts = world.lakeward
    parts.append("db.b", rows(1))
    parts.tier("db.b")
    parts.append("db.b", rows(2))
    assert count(world, "b") == 2
    parts.federation.drop(TablePath.parse("db.b"))
    world.live.sweep()
    world.restart()
    clock.advance(122)
    world.live.sweep()
    assert live_files(tmp_path) == set()
    assert world.live.files.count() == 0
    assert count(world, "b", "default") == 1, "the lake table's own files stay"


def test_loads_cannot_fill_the_lake(tmp_path: Path, clock: ManualClock) -> None:
    with live_world(tmp_path, keep_s=60, clock=clock, max_bytes=1_000_000) as world:
        world.lakeward.create("db.b", COLUMNS)
        url = f"{world.url}/v1/live/namespaces/db/tables/b"
        for number in range(20):
            world.lakeward.append("db.b", rows(number))
            clock.advance(1)
            refused = httpx.get(url)
            if refused.status_code != 200:
                break
        assert refused.status_code == 409
        assert "of `live.max-bytes` (1,000,000)" in refused.json()["error"]["message"]
        assert world.live.files.bytes <= 1_000_000
        for _ in range(2):
            clock.advance(61)
            world.live.sweep()
        assert (live_files(tmp_path), world.live.files.bytes) == (set(), 0)
        assert count(world, "b") == number + 1


def test_one_token_cannot_fill_the_lake_for_the_others(tmp_path: Path, clock: ManualClock) -> None:
    """What a load makes counts for its token until the files go; unchanged tables and other tokens are answered."""
    tokens = ("greedy:read:greedy-secret", "other:read:other-secret")
    with live_world(tmp_path, keep_s=60, clock=clock, quota_bytes=300_000, tokens=tokens) as world:
        for name in ("b", "c"):
            world.lakeward.create(f"db.{name}", COLUMNS)

        def load(secret: str, table: str = "b") -> httpx.Response:
            url = f"{world.url}/v1/live/namespaces/db/tables/{table}"
            return httpx.get(url, headers={"authorization": f"Bearer {secret}"})

        assert load("greedy-secret", "c").status_code == 200
        for number in range(9):
            world.lakeward.append("db.b", rows(number))
            clock.advance(1)
            refused = load("greedy-secret")
            if refused.status_code != 200:
                break
        assert (refused.status_code, refused.json()["error"]["type"]) == (429, "LiveQuotaExceeded")
        assert "loads of token 'greedy' have filled" in refused.json()["error"]["message"]
        assert load("greedy-secret", "c").status_code == 200, "nothing is new there"
        assert load("other-secret").status_code == 200
        assert load("greedy-secret").status_code == 200, "the other token's load has made these files"
        world.restart()
        world.lakeward.append("db.b", rows(99))
        clock.advance(1)
        assert load("greedy-secret").status_code == 429, "a restart forgets nothing"
        for _ in range(2):
            clock.advance(61)
            world.live.sweep()
        assert load("greedy-secret").status_code == 200


def test_files_go_once_no_answer_has_named_them_for_the_keep(
    world: LiveWorld, clock: ManualClock, tmp_path: Path
) -> None:
    world.lakeward.upsert("db.a", rows(1))
    assert count(world, "a") == 1
    first = live_files(tmp_path)
    world.lakeward.tier("db.a")
    clock.advance(2)
    assert count(world, "a") == 1
    world.live.sweep()
    assert live_files(tmp_path) == first, "a client may read them still"
    world.lakeward.coordinator.upkeep.remove_orphans()
    assert live_files(tmp_path) == first
    clock.advance(61)
    assert world.live.files.count_overdue() == 0
    clock.advance(600)
    assert world.live.files.count_overdue() == 1, "what doctor warns of: no sweep has come for ten minutes"
    world.live.sweep()
    assert live_files(tmp_path) == set()
    assert (world.live.files.count(), world.live.files.count_overdue()) == (0, 0)


def test_files_of_a_server_that_was_killed_go_as_well(world: LiveWorld, clock: ManualClock, tmp_path: Path) -> None:
    world.lakeward.upsert("db.a", rows(1))
    assert count(world, "a") == 1
    before = live_files(tmp_path)
    world.restart()
    world.live.sweep()
    assert live_files(tmp_path) == before
    clock.advance(61)
    world.live.sweep()
    assert live_files(tmp_path) == set()
    assert count(world, "a") == 1


def test_a_lake_snapshot_below_a_live_one_does_not_expire(world: LiveWorld, clock: ManualClock) -> None:
    expiring: dict[str, Any] = {"iceberg.history.expire.max-snapshot-age-ms": "1"}
    world.lakeward.create("db.c", COLUMNS, **expiring)
    world.lakeward.append("db.c", rows(1))
    world.lakeward.tier("db.c")
    world.lakeward.append("db.c", rows(2))
    answered = load(world, "c")["metadata"]
    for number in range(3, 6):
        clock.advance(3)
        world.lakeward.append("db.c", rows(number))
        world.lakeward.tier("db.c")
    world.lakeward.coordinator.upkeep.run()
    parent = answered["snapshots"][-1]["parent-snapshot-id"]
    catalog = load_catalog("x", type="rest", uri=world.url)
    assert catalog.load_table("db.c").metadata.snapshot_by_id(parent) is not None
    clock.advance(200)
    world.lakeward.append("db.c", rows(9))
    world.lakeward.tier("db.c")
    assert catalog.load_table("db.c").metadata.snapshot_by_id(parent) is None


def test_a_tail_beyond_the_limit_is_shown_as_of_an_earlier_moment(tmp_path: Path, clock: ManualClock) -> None:
    with live_world(tmp_path, limits=LiveLimits(rows=10, bytes=1 << 30), clock=clock) as world:
        world.lakeward.create("db.a", COLUMNS, buckets=3)
        for number in range(8):
            world.lakeward.append("db.a", rows(*range(number * 3, number * 3 + 3)))
            clock.advance(10)
        properties = load(world, "a")["metadata"]["properties"]
        assert properties[COMPLETE_KEY] == "false"
        assert count(world, "a") == 9, "three whole writes: one moment, not ten rows of some buckets"
        (side,) = world.lakeward.coordinator.board.find_table(TablePath.parse("db.a")).with_state
        assert side.asked is not None, "a round was asked for"
        assert world.live.facts(lambda _: True).cut_short == (TablePath.parse("db.a"),)
        assert world.live.facts(lambda _: False).cut_short == ()
        world.lakeward.tier("db.a")
        assert count(world, "a") == 24
        assert world.live.facts(lambda _: True).cut_short == ()


WRITES = (
    ("POST", "/namespaces"),
    ("DELETE", "/namespaces/db"),
    ("POST", "/namespaces/db/properties"),
    ("POST", "/namespaces/db/tables"),
    ("POST", "/namespaces/db/register"),
    ("POST", "/namespaces/db/tables/a"),
    ("DELETE", "/namespaces/db/tables/a"),
    ("POST", "/tables/rename"),
    ("POST", "/transactions/commit"),
)


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_no_call_through_live_changes_anything(world: LiveWorld, method: str, path: str) -> None:
    refused = httpx.request(method, f"{world.url}/v1/live{path}", json={})
    assert refused.status_code == 403
    assert "write through warehouse `default`" in refused.json()["error"]["message"]


def test_writers_are_refused_by_what_the_warehouse_says_of_itself(world: LiveWorld) -> None:
    world.lakeward.upsert("db.a", rows(1))
    world.lakeward.tier("db.a")
    world.lakeward.upsert("db.a", rows(2))
    config = httpx.get(f"{world.url}/v1/config", params={"warehouse": "live"}).json()
    assert config["overrides"]["prefix"] == "live"
    assert not [e for e in config["endpoints"] if not e.startswith(("GET", "HEAD")) and "metrics" not in e]
    before = load_catalog("x", type="rest", uri=world.url).load_table("db.a").metadata_location
    table = load_catalog("x", type="rest", uri=world.url, warehouse="live").load_table("db.a")
    with pytest.raises((NotImplementedError, ForbiddenError)):
        table.append(table.scan().to_arrow())
    with duckdb_connection() as engine:
        engine.execute(f"ATTACH 'live' AS fresh (TYPE iceberg, ENDPOINT '{world.url}', AUTHORIZATION_TYPE 'none')")
        for statement in ("INSERT INTO fresh.db.a VALUES (3, 'x')", "DELETE FROM fresh.db.a", "DROP TABLE fresh.db.a"):
            with pytest.raises(duckdb.Error):
                engine.execute(statement)
            with suppress(duckdb.Error):
                engine.execute("ROLLBACK")
    assert load_catalog("x", type="rest", uri=world.url).load_table("db.a").metadata_location == before


def test_a_cut_is_a_warehouse_too(world: LiveWorld) -> None:
    parts = world.lakeward
    parts.upsert("db.a", rows(1))
    parts.append("db.b", rows(1, 2))
    parts.coordinator.cuts.create("monday", [TablePath.parse("db.a"), TablePath.parse("db.b")])
    parts.upsert("db.a", rows(2))
    parts.append("db.b", rows(3))
    early = httpx.get(f"{world.url}/v1/cut:monday/namespaces/db/tables/a")
    assert (early.status_code, early.json()["error"]["type"]) == (409, "CutNotReady")
    for table in ("a", "b"):
        parts.tier(f"db.{table}")
    parts.coordinator.cuts.settle()
    assert (count(world, "a", "cut:monday"), count(world, "b", "cut:monday")) == (1, 2)
    assert (count(world, "a"), count(world, "b")) == (2, 3)
    gone = httpx.get(f"{world.url}/v1/cut:tuesday/namespaces/db/tables/a")
    assert gone.status_code == 404
    assert httpx.post(f"{world.url}/v1/cut:monday/namespaces/db/tables/a", json={}).status_code == 403


def test_figures_tell_of_loads_and_of_the_tail(world: LiveWorld, clock: ManualClock, tmp_path: Path) -> None:
    world.lakeward.append("db.b", rows(1, 2, 3))
    assert count(world, "b") == 3
    clock.advance(0.5)
    figures = world.live.figures()[TablePath.parse("db.b")]
    sizes = sum(p.stat().st_size for p in tmp_path.rglob("lw-live-*.parquet"))
    expected = {"liveLoads": 1, "liveTailRows": 3, "liveTailFiles": 1, "liveTailBytes": sizes, "liveMomentAge": 500}
    assert figures == {**expected, "liveComplete": 1.0}
    (loads, *_) = live_metrics(world.live)
    assert [(s.name, s.value) for s in loads.samples] == [("lakeward_live_loads_total", 1)]


def test_a_table_whose_lake_and_log_do_not_join_is_refused_in_words(world: LiveWorld) -> None:
    parts, path = world.lakeward, TablePath.parse("db.a")
    parts.upsert("db.a", rows(1))
    parts.tier("db.a")
    url = f"{world.url}/v1/live/namespaces/db/tables/a"
    parts.coordinator.operations.resync(path, ResyncChoice.RESYNC)
    assert "its resync is not through yet" in httpx.get(url).json()["error"]["message"]
    parts.tier("db.a")
    assert count(world, "a") == 1
    parts.federation.alter(path, AlterTable(properties={"table.datalake.enabled": "false"}))
    parts.upsert("db.a", rows(2))
    assert "its lake is switched off" in httpx.get(url).json()["error"]["message"]


@pytest.mark.parametrize("name", ["LIVE", "Live;at-least=x", "live;atleast=x", "cut:a/b"])
def test_a_misspelt_read_only_warehouse_is_not_taken_for_the_lake(world: LiveWorld, name: str) -> None:
    answer = httpx.get(f"{world.url}/v1/config", params={"warehouse": name})
    assert (answer.status_code, "the warehouses are `default`" in answer.text) == (400, True)
