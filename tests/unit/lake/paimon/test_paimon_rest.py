# SPDX-License-Identifier: Apache-2.0
"""Tables of a REST catalog, which takes commits itself, each on an exact head."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakeward.errors import (
    CommitConflict,
    CommitUnknown,
    InvalidConfig,
    LakeTableGone,
    LakeUnavailable,
    LakewardError,
)
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import TablePath
from lakeward.protocol.heartbeat import TableFinished
from lakeward.verify import verify_table
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from tests.kit.inprocess import InProcessLakeward
from tests.kit.paimonrest import PaimonRestServer

SUITE = LakeSuite()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PaimonRestServer]:
    made = PaimonRestServer(tmp_path / "warehouse")
    yield made
    made.close()


def open_lake(server: PaimonRestServer, **options: str) -> PaimonLakeStorage:
    storage = load({**server.options, **options})
    assert isinstance(storage, PaimonLakeStorage)
    return storage


def test_rounds_reads_and_compactions(server: PaimonRestServer, tmp_path: Path) -> None:
    lake = open_lake(server)
    lake.catalog().check()
    world, path = InProcessLakeward(tmp_path / "server", lake), TablePath("db", "t")
    world.create(str(path), "id bigint not null, v string", primary_key="id", buckets=2)
    for wave in range(3):
        world.upsert(str(path), [{"id": n, "v": f"wave {wave}"} for n in range(wave, 9)])
        world.delete(str(path), [{"id": 8 - wave}])
        (end,) = world.tier(str(path))
        assert isinstance(end, TableFinished), end
        world.add_column(str(path), f"more{wave} int")
    LakeRewrite(lake=lake, table=world.store.load_table(path)).run()
    world.upsert(str(path), [{"id": 1, "v": "tail", "more0": 1, "more1": 2, "more2": 3}])
    found = {r["id"]: r["v"] for r in world.read(str(path)).to_table().to_pylist()}
    assert found == {0: "wave 0", 1: "tail", **dict.fromkeys((2, 3, 4, 5, 7, 8), "wave 2")}
    fields = [f.name for f in lake.connection.load(path).table_schema.fields]
    assert fields == ["id", "v", "more0", "more1", "more2", "__bucket", "__offset", "__timestamp"]
    assert verify_table(world.plugin, path, deep=True, open_storage=lambda _plan: lake).holds
    assert server.commits == 4
    world.close()


def test_of_two_on_one_head_the_catalog_takes_one(server: PaimonRestServer) -> None:
    lake = open_lake(server)
    log = SUITE.make_log(lake)
    for number in range(4):
        log.append(B0, row(number))
        rounds = [LakeRound.plan(open_lake(server), log).write(B0) for _ in range(2)]
        ready = [r.prepare() for r in rounds]

        def commit(at: int, rounds=rounds, ready=ready) -> str:  # type: ignore[no-untyped-def]
            try:
                rounds[at].commit(ready[at])
            except CommitConflict:
                return "conflict"
            return "done"

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(commit, range(2))) == ["conflict", "done"]
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    assert server.commits == number + 1


def test_an_answer_that_is_lost_leaves_it_open_and_the_round_is_found(server: PaimonRestServer) -> None:
    lake = open_lake(server)
    log = SUITE.make_log(lake)
    log.append(B0, row(1))
    made = LakeRound.plan(lake, log).write(B0)

    def cut(_path: str) -> None:
        raise ConnectionResetError

    server.before_answer = cut
    ready = made.prepare()
    with pytest.raises(CommitUnknown):
        made.commit(ready)
    server.before_answer = lambda _path: None
    found = made.committer.find(made.round_id)
    assert found is not None
    assert found.round_id == made.round_id
    with pytest.raises(CommitConflict):
        made.commit(ready)
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    log.append(B0, row(2))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_table_that_was_made_anew_takes_no_commit_for_the_old_one(server: PaimonRestServer) -> None:
    lake = open_lake(server)
    log = SUITE.make_log(lake)
    log.append(B0, row(1))
    made = LakeRound.plan(lake, log).write(B0)
    ready = made.prepare()
    server.forget(log.table.path)
    with pytest.raises(LakeTableGone):
        made.commit(ready)
    assert server.commits == 0


def test_a_catalog_that_is_down_or_does_not_know_us(server: PaimonRestServer) -> None:
    with pytest.raises(LakeUnavailable, match="who is it"):
        open_lake(server, token="other").catalog().check()
    lake = open_lake(server)
    log = SUITE.make_log(lake)
    log.append(B0, row(1))
    made = LakeRound.plan(lake, log).write(B0)
    ready = made.prepare()
    server.close()
    with pytest.raises(LakewardError) as failed:
        made.commit(ready)
    assert isinstance(failed.value, CommitUnknown | LakeUnavailable)
    with pytest.raises(LakeUnavailable, match="does not answer"):
        open_lake(server).catalog().check()
    assert not (server.folder / f"{log.table.path.database}.db" / log.table.path.table / "snapshot").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metastore": "hive"}, "'hive' is not served, as pypaimon has no client for it; filesystem, jdbc, rest"),
        ({"metastore": "rest"}, "datalake.paimon.uri.*name its server"),
        (
            {"metastore": "rest", "uri": "http://h", "data-token.enabled": "true"},
            "tokens of the catalog are not served",
        ),
    ],
)
def test_what_is_not_served_is_refused_in_words(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        load({"warehouse": "main", **options})
