# SPDX-License-Identifier: Apache-2.0
"""Log ends of several tables: one round of requests, all sent before the first answer."""

from __future__ import annotations

from dataclasses import replace

from lakeward.hot.fluss.offsets import FlussOffsets
from lakeward.hot.fluss.wire.messages import LIST_OFFSETS, METADATA
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward.model import Bucket, TableId, TableInfo, TablePath
from tests.unit.hot.fluss.scripted_server import Call, scripted
from tests.unit.hot.fluss.test_moves import TABLE

NODE, LEADERLESS = 1, -1


def table(number: int) -> TableInfo:
    return replace(TABLE, path=TablePath("shop", f"t{number}"), table_id=TableId(str(number)))


def test_no_answer_is_read_before_every_request_was_sent() -> None:
    """The server answers no offset before it has all three requests; a table without a leader is left out."""
    tables, waiting = [table(n) for n in (1, 2, 3, 4)], list[Call]()
    leaders = iter([NODE, NODE, NODE])

    def answer(call: Call) -> None:
        if call.key == METADATA.key:
            asked = sum(c.key == METADATA.key for c in server.calls)
            leader = next(leaders, LEADERLESS)
            named = {"table_id": min(asked, 4), "buckets": [{"bucket": 0, "leader": leader}]}
            node = {"id": NODE, "host": "127.0.0.1", "port": server.port}
            call.done(METADATA, {"tablets": [node], "tables": [named]})
        elif call.key == LIST_OFFSETS.key:
            waiting.append(call)
            for number, held in enumerate(waiting if len(waiting) == 3 else [], start=5):
                held.done(LIST_OFFSETS, {"buckets": [{"bucket": 0, "offset": number}]})

    with scripted(answer) as server:
        servers = FlussServers(f"127.0.0.1:{server.port}", timeout_s=30.0)
        ends = FlussOffsets(servers).ends_together(tables)
        servers.close()
    assert ends == {TableId(str(n)): {Bucket("", 0): n + 4} for n in (1, 2, 3)}
