# SPDX-License-Identifier: Apache-2.0
"""`lakeward trace`: a row is followed through log, rounds, files and a compaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakeward.cli import app
from lakeward_testing.waiting import wait_until
from tests.kit.advice import put, wait_for_job
from tests.spark.processes import Job, Server, rounds

Trace = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("trace")
    lakes = {"lakes.side.format": "delta", "lakes.side.warehouse": str(folder / "delta")}
    server = Server(folder, {**lakes, "table.datalake.auto-compaction": "true"})
    job = Job(server, "hand", spark=False)
    wait_for_job(server, job)
    yield server
    job.kill()
    server.kill()


@pytest.fixture
def trace(server: Server, capsys: pytest.CaptureFixture[str]) -> Trace:
    def call(*arguments: str, code: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        assert app.run(["trace", *arguments, "--json", "--server", server.url]) == code
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    return call


@pytest.mark.parametrize("lake", ["default", "side"])
def test_a_row_is_followed_from_the_log_to_its_file(
    server: Server, trace: Trace, capsys: pytest.CaptureFixture[str], lake: str
) -> None:
    name = f"traced.{lake}"
    properties = {"table.datalake.lakes": lake}
    with server.connect() as client:
        table = client.create_table(
            name, "id bigint, words string", primary_key="id", buckets=1, freshness="1 h", properties=properties
        )
        put(client, name, 1, 2, 3, tier=True)
        table.upsert([{"id": 2, "words": "again"}])
        client.tier_now(name)
        newest, before, first = trace(name, "--key", "2")["changes"]
        assert [c["kind"] for c in (newest, before, first)] == [3, 2, 1]
        assert (first["offset"], newest["offset"]) == (1, 4)
        assert newest["writer"]["writer"] is not None
        by_id = {r["round_id"]: r for r in rounds(client, table)}
        assert newest["round"]["round_id"] in by_id
        assert newest["entry"]["snapshot_id"] == newest["places"][0]["snapshot_id"]
        assert first["removal"]["snapshot_id"] == newest["entry"]["snapshot_id"]
        assert first["removal"]["file"] is not None
        place = newest["places"][0]
        stored = pq.ParquetFile(place["file"].removeprefix("file://")).read()
        assert stored.slice(place["position"], 1).column("words").to_pylist() == ["again"]

        for number in range(10, 13):
            put(client, name, number, tier=True)
        assert app.run(["maintain", name, "--now", "--server", server.url]) == 0

        def moves() -> Any:
            (only,) = trace(name, "--key", "3")["changes"]
            return only if len(only["places"]) > 1 else None

        moved = wait_until(moves, what="the compaction", state=lambda: rounds(client, table))
        (compaction,) = [r for r in rounds(client, table) if r["round_id"] == moved["places"][1]["rewrite_id"]]
        assert compaction["kind"] == "compact", "it wrote the file again that had a deleted row"

        put(client, name, 20)
        (waiting,) = trace(name, "--key", "20")["changes"]
        assert (waiting["entry"], waiting["places"]) == (None, [])
        assert trace(name, "--key", "99", code=1)["changes"] == []
        assert trace(name, "--at", "0:4")["changes"] == [newest]
        capsys.readouterr()
    for key in ("2", "3"):
        assert app.run(["trace", name, "--key", key, "--server", server.url]) == 0
    words = capsys.readouterr().out
    for part in ("after it was durable", "first shown by snapshot", "moved by compaction", ", row ", "taken out by"):
        assert part in words, words


def test_a_row_of_a_log_table_is_named_by_its_offset(server: Server, trace: Trace) -> None:
    with server.connect() as client:
        client.create_table("traced.log", "id bigint", buckets=1, freshness="1 h")
        put(client, "traced.log", 1, 2, tier=True)
    (row,) = trace("traced.log", "--at", "0:1")["changes"]
    assert (row["kind"], row["places"][0]["position"]) == (0, 1)
    for wrong in (["--key", "1"], ["--at", "x"], [], ["--key", "1", "--at", "0:1"]):
        assert app.run(["trace", "traced.log", *wrong, "--server", server.url]) == 2
