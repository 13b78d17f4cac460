# SPDX-License-Identifier: Apache-2.0
"""A job that comes back under its name gives back whatever Fluss counted as its own, as soon as Fluss answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import ServerUnavailable
from lakeward.hot.fluss.coordinatorclient import FlussCoordinatorClient
from lakeward.hot.fluss.handout.epochs import join_epoch
from lakeward.hot.fluss.handout.heldnote import HeldNote
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.wire.messages import ALTER_DATABASE, HEARTBEAT, METADATA, decode
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward.model import InstanceId, JobName, RoundId, TableId
from lakeward.protocol.heartbeat import HeartbeatRequest, TableFailed
from lakeward_testing.clock import ManualClock
from tests.unit.hot.fluss.scripted_server import Call, ScriptedServer, scripted

JOB, EPOCH = JobName("mine"), join_epoch(4, 3)
ASKS = HeartbeatRequest(job=JOB, instance=InstanceId("i"), room=4)


def client_of(server: ScriptedServer, folder: Path, clock: ManualClock) -> FlussCoordinatorClient:
    servers = FlussServers(f"127.0.0.1:{server.port}", timeout_s=5.0)
    note = HeldNote("cluster", clock, folder)
    return FlussCoordinatorClient(servers, FlussStore(servers), lambda _: ("iceberg", {}, None), clock, note)  # type: ignore[arg-type, return-value]


def test_a_table_whose_failure_was_still_to_be_told(tmp_path: Path) -> None:
    """Between two rounds of a table that fails the job works on nothing, and Fluss counts the table as its own."""
    beats, clock, is_away = list[dict[str, Any]](), ManualClock(), False

    def answer(call: Call) -> None:
        if call.key == METADATA.key:
            call.done(METADATA, {"coordinator": {"id": 0, "host": "127.0.0.1", "port": server.port}})
        elif is_away:
            call.hang_up()
        else:
            beats.append(decode(HEARTBEAT.request, call.body))
            call.done(HEARTBEAT, {"coordinator_epoch": 4})

    failed = TableFailed(table_id=TableId("7"), epoch=EPOCH, round_id=RoundId("r"), error={"code": "x"})
    with scripted(answer, keys=(METADATA.key, HEARTBEAT.key, ALTER_DATABASE)) as server:
        killed = client_of(server, tmp_path, clock)
        killed.heartbeat(ASKS)
        killed.heartbeat(HeartbeatRequest(job=JOB, instance=InstanceId("i"), failed=(failed,)))
        killed.servers.close()
        assert all(not beat.get("failed") for beat in beats)
        again, is_away = client_of(server, tmp_path, clock), True
        with pytest.raises(ServerUnavailable):
            again.heartbeat(ASKS)
        is_away = False
        again.heartbeat(ASKS)
        again.heartbeat(ASKS)
        again.servers.close()
    told = [[(e["table_id"], e["tiering_epoch"]) for e in beat.get("failed", [])] for beat in beats]
    assert [entries for entries in told if entries] == [[(7, 3)]]
