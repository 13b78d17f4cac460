# SPDX-License-Identifier: Apache-2.0
"""A table that our job cannot tier goes to the Flink job beside it, however often ours asks for tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.model import Bucket, OffsetMap
from lakeward_testing.waiting import wait_until
from tests.fluss.flink import FlinkTieringJob, append_events
from tests.fluss.steps import DATABASE, EVENTS, Append, MakeTable, events
from tests.fluss.test_handover import LEASE_S
from tests.fluss.world import FlussWorld, ThreadJob

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

INDEXED = {"table.log.format": "indexed"}


def test_the_flink_job_gets_what_ours_gives_back(lone: FlussWorld, tmp_path: Path) -> None:
    """Ours says so once, and goes on with its own table."""
    lone.produce(
        MakeTable(name="rows", schema=EVENTS, buckets=1, freshness="1s", properties=INDEXED),
        MakeTable(name="own", schema=EVENTS, buckets=1, freshness="1s"),
        Append(table="own", rows=events(0, 10)),
    )
    append_events(lone.cluster, DATABASE, "rows", 0, 300)
    ours, left = ThreadJob(lone.cluster.bootstrap, "ours"), f"{DATABASE}.rows is left to other jobs"
    try:
        lone.wait_tiered("own", LEASE_S)
        wait_until(lambda: left in ours.log, what="a table that is given back")
        flink = FlinkTieringJob(lone.cluster, tmp_path / "flink.log")
        try:
            everything = OffsetMap({Bucket("", 0): 300})
            wait_until(lambda: lone.committed("rows") == everything, limit_s=LEASE_S, what="a round of the Flink job")
        finally:
            flink.stop()
        assert lone.writers("rows") == {"flink"}
        assert ours.log.count(left) == 1
        lone.produce(Append(table="own", rows=events(10, 20)))
        lone.wait_tiered("own", LEASE_S)
    finally:
        ours.stop()
