# SPDX-License-Identifier: Apache-2.0
"""Tables that a coordinator hands out one by one: what came before it went away is not lost."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from lakeward.errors import InvalidTable
from lakeward.hot.fluss.coordinatorclient import FlussCoordinatorClient
from lakeward.hot.fluss.lakeoptions import lake_of
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.supported import check_supported
from lakeward.hot.fluss.tables import freshness_ms, parse_partitions, parse_table, with_own_buckets
from lakeward.hot.fluss.wire.messages import HEARTBEAT, METADATA, TABLE_INFO, decode
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.lake.memory.table import MemoryLake
from lakeward.model import TIER, InstanceId, JobName, RoundId, RoundResult, TableInfo, TablePath
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import HeartbeatRequest, TableFinished, TableInWork
from lakeward_testing.clock import ManualClock
from tests.unit.hot.fluss.scripted_server import Call, scripted


def test_tables_that_were_handed_out_are_kept_when_the_next_beat_fails() -> None:
    """Fluss counts them as being tiered: a job that forgets them leaves them still for two minutes. What their
    descriptions say is the rounds' trouble."""
    beats: list[Call] = []

    def answer(call: Call) -> None:
        if call.key == METADATA.key:
            call.done(METADATA, {"coordinator": {"id": 0, "host": "127.0.0.1", "port": server.port}})
        elif call.key == HEARTBEAT.key:
            beats.append(call)
            if len(beats) > 2:
                call.hang_up()
                return
            path = {"database": "shop", "table": f"t{len(beats)}"}
            call.done(
                HEARTBEAT, {"coordinator_epoch": 4, "table": {"table_id": len(beats), "path": path, "tiering_epoch": 1}}
            )
        elif call.key == TABLE_INFO.key and len(beats) == 1:
            call.done(TABLE_INFO, {"table_id": 1, "schema_id": 1, "json": b'{"unknown": "layout"}'})
        else:
            call.fail(7, "no such table")

    with scripted(answer) as server:
        servers = FlussServers(f"127.0.0.1:{server.port}", timeout_s=5.0)
        client = FlussCoordinatorClient(servers, FlussStore(servers), lambda _table: ("iceberg", {}, None))  # type: ignore[arg-type, return-value]
        found = client.heartbeat(HeartbeatRequest(job=JobName("j"), instance=InstanceId("i"), room=4))
        servers.close()
    assert [h.path.table for h in found.tables] == ["t1", "t2"]
    assert found.coordinator_epoch == 4


def description(**properties: str) -> bytes:
    columns = [{"name": "id", "data_type": {"type": "BIGINT", "nullable": False}}]
    body = {"schema": {"columns": columns, "primary_key": ["id"]}, "bucket_count": 2}
    return json.dumps({**body, "properties": {"table.datalake.enabled": "true", **properties}}).encode()


def parse(**properties: str) -> TableInfo:
    answer = {"table_id": 1, "schema_id": 1, "json": description(**properties)}
    return parse_table(TablePath("shop", "t"), answer, {})


def test_tables_that_this_job_cannot_tier_wait_for_others(caplog: pytest.LogCaptureFixture) -> None:
    """They are given back in the same breath, all together, and the job's own table behind them is reached; then the
    job asks for none for a while."""
    waiting, beats = ["lance", "lance", "iceberg"], list[dict[str, object]]()

    def answer(call: Call) -> None:
        if call.key == METADATA.key:
            call.done(METADATA, {"coordinator": {"id": 0, "host": "127.0.0.1", "port": server.port}})
        elif call.key == HEARTBEAT.key:
            beat = decode(HEARTBEAT.request, call.body)
            beats.append(beat)
            number = 4 - len(waiting)
            table = {"table_id": number, "path": {"database": "shop", "table": f"t{number}"}, "tiering_epoch": 1}
            given = {"table": table} if beat.get("request_table") and waiting else {}
            call.done(HEARTBEAT, {"coordinator_epoch": 4, **given})
            asked.append(waiting.pop(0) if given else "")
        elif call.key == TABLE_INFO.key:
            body = json.loads(description(**{"table.datalake.format": asked[-1]}))
            call.done(
                TABLE_INFO, {"table_id": 1, "schema_id": 1, "json": json.dumps({**body, "partition_key": []}).encode()}
            )
        else:
            call.fail(7, "not asked for here")

    asked: list[str] = []
    caplog.set_level(logging.WARNING)
    with scripted(answer) as server:
        servers = FlussServers(f"127.0.0.1:{server.port}", timeout_s=5.0)
        client = FlussCoordinatorClient(servers, FlussStore(servers), lambda table: (*lake_of(table, {}), None))  # type: ignore[arg-type, return-value]
        request = HeartbeatRequest(job=JobName("j"), instance=InstanceId("i"), room=4)
        handed = client.heartbeat(request)
        again = client.heartbeat(request)
        servers.close()
    assert [h.path.table for h in handed.tables] == ["t3"]
    assert again.tables == ()
    failed = [[e["table_id"] for e in beat.get("failed", [])] for beat in beats]  # type: ignore[attr-defined]
    assert failed == [[], [], [], [], [1, 2], []]
    assert [beat.get("request_table") for beat in beats] == [1, 1, 1, 1, None, None]
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == [
        "shop.t1 is left to other jobs",
        "shop.t2 is left to other jobs",
    ]


def test_a_table_is_looked_at_each_time_that_it_comes(caplog: pytest.LogCaptureFixture) -> None:
    """Its properties are altered, partitions come: what was refused is taken once the reason is gone, and the other way
    round. Each time the reason is said once."""
    properties, clock = {"table.datalake.format": "iceberg"}, ManualClock()

    def answer(call: Call) -> None:
        if call.key == METADATA.key:
            call.done(METADATA, {"coordinator": {"id": 0, "host": "127.0.0.1", "port": server.port}})
        elif call.key == HEARTBEAT.key:
            table = {"table_id": 1, "path": {"database": "shop", "table": "t"}, "tiering_epoch": 1}
            is_asked = decode(HEARTBEAT.request, call.body).get("request_table")
            waits = waiting.pop() if is_asked and waiting else False
            call.done(HEARTBEAT, {"coordinator_epoch": 4, **({"table": table} if waits else {})})
        elif call.key == TABLE_INFO.key:
            call.done(TABLE_INFO, {"table_id": 1, "schema_id": 1, "json": description(**properties)})
        else:
            call.fail(7, "not asked for here")

    def handed(**changed: str) -> int:
        waiting.append(True)
        properties.update(changed)
        clock.advance(2.0)
        return len(client.heartbeat(HeartbeatRequest(job=JobName("j"), instance=InstanceId("i"), room=4)).tables)

    waiting: list[bool] = []
    lake, ttl = MemoryLakeStorage(MemoryLake()), "table.kv.ttl"
    caplog.set_level(logging.WARNING)
    with scripted(answer) as server:
        servers = FlussServers(f"127.0.0.1:{server.port}", timeout_s=5.0)
        client = FlussCoordinatorClient(
            servers, FlussStore(servers), lambda table: (*lake_of(table, {}), lake), clock=clock
        )
        assert [handed(), handed(**{ttl: "7d"}), handed()] == [1, 0, 0]
        del properties[ttl]
        assert [handed(), handed(**{ttl: "8d"})] == [1, 0]
        servers.close()
    said = [r.getMessage() for r in caplog.records]
    assert [f"{ttl} '{days}'" in words for days, words in zip(("7d", "8d"), said, strict=True)] == [True, True]


@pytest.mark.parametrize(
    ("text", "ms"), [(None, 180_000), ("10 s", 10_000), ("0s", 1), ("7 µs", 1), ("10 ns", 180_000)]
)
def test_whatever_freshness_fluss_takes_is_taken(text: str | None, ms: int) -> None:
    assert freshness_ms(parse(**({} if text is None else {"table.datalake.freshness": text}))) == ms


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("table.log.format", "INDEXED"),
        ("table.kv.value-layout-version", "3"),
        ("table.kv.ttl", "7d"),
        ("table.datalake.database-name", "elsewhere"),
        ("table.datalake.table-name", "other"),
        ("table.datalake.changelog", "main"),
        ("table.datalake.lakes", "main,backup"),
    ],
)
def test_what_is_not_supported_is_refused_in_words(field: str, value: str) -> None:
    check_supported(parse(**{"table.datalake.table-name": "t", "table.kv.value-layout-version": "2"}))
    with pytest.raises(InvalidTable, match=f"table shop.t: {field} '{value.lower()}'"):
        check_supported(parse(**{field: value}))


def test_a_partition_with_buckets_of_its_own_is_refused() -> None:
    answer = {"partitions": [{"partition_id": 3, "bucket_count": 2, "spec": {"values": [{"key": "id", "value": "1"}]}}]}
    check_supported(with_own_buckets(parse(), answer))
    assert parse_partitions(answer, ["id"]) == {3: "1"}
    answer["partitions"][0]["bucket_count"] = 4
    with pytest.raises(InvalidTable, match="the table has 2, and all its partitions must have as many"):
        check_supported(with_own_buckets(parse(), answer))


@pytest.mark.parametrize("is_on", [True, False])
def test_a_compaction_follows_a_round_under_its_lease(is_on: bool) -> None:
    """Through the client: Fluss renews the table, and hears of the round's end when the compaction is over."""
    beats = list[dict[str, Any]]()
    switch = {} if is_on else {"table.datalake.auto-compaction": "false"}
    body = json.loads(description(**{"table.datalake.format": "iceberg"}, **switch))

    def answer(call: Call) -> None:
        if call.key == METADATA.key:
            call.done(METADATA, {"coordinator": {"id": 0, "host": "127.0.0.1", "port": server.port}})
        elif call.key == HEARTBEAT.key:
            beats.append(decode(HEARTBEAT.request, call.body))
            table = {"table_id": 1, "path": {"database": "shop", "table": "t"}, "tiering_epoch": 5}
            call.done(HEARTBEAT, {"coordinator_epoch": 4, **({"table": table} if len(beats) == 1 else {})})
        elif call.key == TABLE_INFO.key:
            sent = json.dumps({**body, "partition_key": []}).encode()
            call.done(TABLE_INFO, {"table_id": 1, "schema_id": 1, "json": sent})
        else:
            call.fail(7, "not asked for here")

    with scripted(answer) as server:
        servers = FlussServers(f"127.0.0.1:{server.port}", timeout_s=5.0)
        lake = MemoryLakeStorage(MemoryLake())
        client = FlussCoordinatorClient(servers, FlussStore(servers), lambda table: (*lake_of(table, {}), lake))
        request = HeartbeatRequest(job=JobName("j"), instance=InstanceId("i"), room=1, kinds=(TIER, COMPACT))
        (handed,) = client.heartbeat(request).tables
        ours: dict[str, Any] = {"table_id": handed.table_id, "epoch": handed.epoch}
        result = RoundResult(round_id=RoundId("r"), snapshot_id=None, files=1)
        ended = TableFinished(**ours, round_id=RoundId("r"), result=result)
        compactions = client.heartbeat(replace(request, finished=(ended,))).tables
        if is_on:
            client.heartbeat(replace(request, room=0, tiering=(TableInWork(**ours, kind=COMPACT),)))
            client.heartbeat(replace(request, finished=(TableFinished(**ours, kind=COMPACT),)))
        servers.close()
    told = [(len(b.get("tiering", [])), len(b.get("finished", []))) for b in beats[-3:]]
    if is_on:
        assert [(h.kind, h.epoch, str(h.path)) for h in compactions] == [(COMPACT, handed.epoch, "shop.t")]
        assert told == [(1, 0), (1, 0), (0, 1)]
    else:
        assert compactions == ()
        assert told[-1] == (0, 1)
