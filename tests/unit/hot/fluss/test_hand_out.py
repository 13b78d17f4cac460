# SPDX-License-Identifier: Apache-2.0
"""Tables that a coordinator hands out one by one: what came before it went away is not lost."""

from __future__ import annotations

from lakeward.hot.fluss.coordinatorclient import FlussCoordinatorClient
from lakeward.hot.fluss.messages import HEARTBEAT, METADATA, TABLE_INFO
from lakeward.hot.fluss.servers import FlussServers
from lakeward.hot.fluss.store import FlussStore
from lakeward.model.ids import InstanceId, JobName
from lakeward.protocol.heartbeat import HeartbeatRequest
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
