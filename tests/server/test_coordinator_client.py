# SPDX-License-Identifier: Apache-2.0
"""Every call of the coordinator's client against a real server with an Iceberg lake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakeward.client import Client
from lakeward.errors import (
    InvalidAlter,
    LakeBehind,
    LedgerGap,
    ReadTooFarAhead,
    SideNotFound,
    SnapshotGone,
    TableNotFound,
)
from lakeward.hot.embedded.plugin import load
from lakeward.model import (
    DEFAULT_SIDE,
    Bucket,
    InstanceId,
    Intent,
    JobName,
    OffsetMap,
    OffsetRange,
    RoundId,
    SideName,
    SnapshotId,
    TablePath,
    new_round_id,
)
from lakeward.protocol.flight import Ticket, from_bytes, ticket_from_text
from lakeward.protocol.heartbeat import CommitReport, CommittedRange, HeartbeatRequest, LeaseCheck
from lakeward.protocol.readplan import WriteToken
from lakeward.spi import CoordinatorClient
from lakeward_testing.waiting import wait_until
from tests.kit.serverprocess import ServerProcess

B0 = Bucket("", 0)
JOB, INSTANCE = JobName("tier-1"), InstanceId("one")


@pytest.fixture(scope="module")
def lake_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("lake") / "data"
    made = ServerProcess(folder, settings={"datalake.format": "iceberg"}).start()
    yield made
    made.close()


@pytest.fixture
def client(lake_server: ServerProcess) -> Client:
    return lake_server.client()


@pytest.fixture
def coordinator(client: Client) -> CoordinatorClient:
    return client.plugin.coordinator()


def test_a_job_lives_its_round_through_the_client(client: Client, coordinator: CoordinatorClient) -> None:
    table = client.create_table("d.rounds", "id BIGINT", freshness="1 s")
    table.append([{"id": n} for n in range(10)])
    beat = HeartbeatRequest(job=JOB, instance=INSTANCE, room=1)
    (given,) = wait_until(lambda: coordinator.heartbeat(beat).tables, what="a table to tier")
    assert given.path == table.info.path
    round_id = new_round_id()
    coordinator.record_intent(
        Intent(round_id=round_id, table_id=given.table_id, prefix="data/", token=None, fence=0, recorded_at_ms=1)
    )
    check = LeaseCheck(job=JOB, instance=INSTANCE, table_id=given.table_id, epoch=given.epoch, round_id=round_id)
    assert coordinator.check_lease(check).held
    assert not coordinator.check_lease(replace(check, instance=InstanceId("other"))).held
    assert not coordinator.knows_round(given.table_id, round_id)
    report = CommitReport(
        table_id=given.table_id,
        round_id=round_id,
        snapshot_id=SnapshotId("1"),
        epoch=given.epoch,
        job=JOB,
        instance=INSTANCE,
        offsets=OffsetMap({B0: 10}),
        ranges=(CommittedRange(bucket=B0, range=OffsetRange(0, 10), rows=10),),
    )
    assert coordinator.commit(report).first
    assert not coordinator.commit(report).first
    with pytest.raises((LedgerGap, LakeBehind)):
        gap = CommittedRange(bucket=B0, range=OffsetRange(12, 14))
        coordinator.commit(replace(report, round_id=RoundId("x"), offsets=OffsetMap({B0: 14}), ranges=(gap,)))
    assert coordinator.knows_round(given.table_id, round_id, given.side)
    assert coordinator.committed(given.path, given.side).offsets == OffsetMap({B0: 10})
    assert [(e.round_id, e.range) for e in coordinator.ledger(given.path)] == [(round_id, OffsetRange(0, 10))]
    coordinator.abandon_intent(new_round_id())


def test_every_call_goes_to_the_side_that_is_named(client: Client, coordinator: CoordinatorClient) -> None:
    path, nowhere = client.create_table("d.sides", "id BIGINT").info.path, SideName("nowhere")
    for call in (coordinator.committed, coordinator.ledger, coordinator.read_plan):
        assert call(path, side=DEFAULT_SIDE) is not None
        with pytest.raises(SideNotFound, match="nowhere"):
            call(path, side=nowhere)


def test_a_reader_plans_under_a_lease(client: Client, coordinator: CoordinatorClient) -> None:
    table = client.create_table("d.reads", "id BIGINT")
    token = table.append([{"id": n} for n in range(5)])
    plan = coordinator.read_plan(table.info.path, lease_s=30.0, at_least=str(token))
    (tail,) = plan.tails
    assert (tail.bucket, tail.range) == (B0, OffsetRange(0, 5))
    ticket = from_bytes(Ticket, ticket_from_text(tail.ticket))
    rows = [row for batch, _ in client.store.connection.stream(ticket) for row in batch.column("id").to_pylist()]
    assert rows == [0, 1, 2, 3, 4]
    coordinator.renew_read(plan.lease_id, 30.0)
    coordinator.release_read(plan.lease_id)
    coordinator.release_read(plan.lease_id)
    with pytest.raises(SnapshotGone):
        coordinator.renew_read(plan.lease_id, 30.0)
    beyond = WriteToken(table_id=table.info.table_id, offsets=OffsetMap({B0: 99}))
    with pytest.raises(ReadTooFarAhead):
        coordinator.read_plan(table.info.path, at_least=str(beyond))
    with pytest.raises(TableNotFound):
        coordinator.read_plan(TablePath("d", "none"))
    assert client.read("d.reads").to_table().num_rows == 5


def test_the_plugin_leads_to_the_lake(lake_server: ServerProcess, client: Client, tmp_path: Path) -> None:
    plugin = load({"server": lake_server.url})
    table = client.create_table("d.lake", "id BIGINT").info
    name, options = plugin.lake_options(table)
    assert name == "iceberg"
    assert options["uri"] == f"{lake_server.url}/iceberg"
    assert plugin.store().load_table(table.path) == table
    assert plugin.coordinator().committed(table.path).offsets == OffsetMap()
    plugin.store().close()
    plugin.server.close()


def test_one_command_moves_a_table_to_format_version_3(client: Client) -> None:
    """What `lakeward table alter d.moved --set iceberg.format-version=...` calls; a refusal changes nothing."""
    made = client.create_table("d.moved", "id BIGINT").path

    def version() -> int:
        found: int = client.server.ask("GET", "/iceberg/v1/namespaces/d/tables/moved")["metadata"]["format-version"]
        return found

    with pytest.raises(InvalidAlter, match="versions 2 and 3 are written"):
        client.alter_table(made, properties={"iceberg.format-version": "4"})
    assert version() == 2
    moved = client.alter_table(made, properties={"iceberg.format-version": "3"})
    assert (version(), moved.info.descriptor.properties["iceberg.format-version"]) == (3, "3")
    with pytest.raises(InvalidAlter, match="no table goes back"):
        client.alter_table(made, properties={"iceberg.format-version": None})
