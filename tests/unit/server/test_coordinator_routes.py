# SPDX-License-Identifier: Apache-2.0
"""The coordinator's HTTP resources: messages, roles and typed errors, through the application without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from lakeward.errors import LedgerGap, Superseded, from_wire
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.drain import CallDrain
from lakeward.hot.embedded.serve.quota import WriterQuotas
from lakeward.model import (
    BucketFunction,
    Column,
    Epoch,
    Heartbeat,
    InstanceId,
    Int64Type,
    Intent,
    JobName,
    OffsetMap,
    OffsetRange,
    RoundId,
    Schema,
    SnapshotId,
    TableDescriptor,
)
from lakeward.protocol import routes
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.codec import decode, encode
from lakeward.protocol.heartbeat import (
    CommitAnswer,
    CommitReport,
    Committed,
    CommittedRange,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseCheck,
    TableFinished,
    Verdict,
)
from lakeward.protocol.operate import AdmissionAnswer, AdmissionQuery, CoordinatorStatus, LedgerAnswer
from lakeward.protocol.readplan import ReadPlan
from lakeward.protocol.routes import PROTOCOL, PROTOCOL_HEADER
from lakeward.protocol.views import LagExplanation, TableStatus
from lakeward.server.app import create_app
from lakeward.server.ingest.rowput import RowIntake
from lakeward.server.routes.jobs import MOST_JOBS
from lakeward.server.routes.tiering import MOST_ASKING
from lakeward.server.services import Services
from lakeward.server.tablequota import TableQuota
from tests.kit.changedjson import changed, places_in
from tests.kit.world import B0, PATH, CoordinatorWorld

TOKENS = TokenSet.parse(["r:read:read", "w:write:write", "j:job:job", "a:admin:admin"])


class Door:
    """One caller of the application."""

    def __init__(self, app: FastAPI) -> None:
        self.transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        role: str = "admin",
        headers: Mapping[str, str] | None = None,
        **params: Any,
    ) -> Any:
        return asyncio.run(self._ask(method, path, body, role, params, headers or {}))

    def ask_each(self, calls: Iterable[tuple[str, str, Any]]) -> list[httpx.Response]:
        """One after the other, much faster than by `ask`: there is one loop for all."""

        async def each() -> list[httpx.Response]:
            return [await self._ask(*call, "admin", {}, {}) for call in calls]

        return asyncio.run(each())

    async def _ask(
        self, method: str, path: str, body: Any, role: str, params: dict[str, Any], headers: Mapping[str, str]
    ) -> httpx.Response:
        async with httpx.AsyncClient(transport=self.transport, base_url="http://server") as client:
            json = None if body is None else encode(body)
            return await client.request(
                method,
                path,
                json=json,
                params=params,
                headers={"Authorization": f"Bearer {role}", "Content-Type": "application/json", **headers},
            )

    def beat(self, instance: str = "i1", **more: Any) -> HeartbeatAnswer:
        request = HeartbeatRequest(job=JobName("job"), instance=InstanceId(instance), slots=2, **more)
        answer = self.ask("POST", routes.HEARTBEAT, request, role="job")
        if answer.status_code != 200:
            raise from_wire(answer.json())
        return decode(HeartbeatAnswer, answer.json())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CoordinatorWorld]:
    made = CoordinatorWorld(tmp_path)
    yield made
    made.close()


@pytest.fixture
def services(world: CoordinatorWorld) -> Services:
    return services_of(world)


def services_of(world: CoordinatorWorld) -> Services:
    return Services(
        store=world.hot,  # type: ignore[arg-type]
        coordinator=world.coordinator,
        federation=world.federation,
        tokens=TOKENS,
        info=lambda: None,  # type: ignore[arg-type, return-value]
        intake=RowIntake(world.hot, MemoryBudget(), WriterQuotas(), CallDrain("tests"), 1 << 20),  # type: ignore[arg-type]
        clock=world.clock,
    )


@pytest.fixture
def door(services: Services) -> Door:
    return Door(create_app(services))


def path_of(route: str) -> str:
    return route.format(table=PATH)


def test_a_round_over_http(world: CoordinatorWorld, door: Door) -> None:
    table = world.create().table
    world.hot.append(PATH, 10)
    world.clock.advance(200)
    (handed,) = door.beat(room=2).tables
    check = LeaseCheck(
        job=JobName("job"),
        instance=InstanceId("i1"),
        table_id=table.table_id,
        epoch=handed.epoch,
        round_id=RoundId("r1"),
    )
    assert door.ask("POST", routes.LEASE_CHECK, check, role="job").json()["held"] is True
    intent = Intent(round_id=RoundId("r1"), table_id=table.table_id, prefix="p", token=None, fence=0, recorded_at_ms=0)
    assert door.ask("POST", routes.INTENTS, intent, role="job").status_code == 204
    report = CommitReport(
        table_id=table.table_id,
        round_id=RoundId("r1"),
        snapshot_id=SnapshotId("1"),
        epoch=handed.epoch,
        job=JobName("job"),
        instance=InstanceId("i1"),
        offsets=OffsetMap({B0: 10}),
        ranges=(CommittedRange(bucket=B0, range=OffsetRange(0, 10), rows=10),),
    )
    for first in (True, False):
        assert decode(CommitAnswer, door.ask("POST", routes.COMMITS, report, role="job").json()).first is first
    known = routes.KNOWN_ROUND.format(table_id=table.table_id, round_id="r1")
    assert door.ask("GET", known, role="read").json()["known"] is True
    done = door.beat(finished=(TableFinished(table_id=table.table_id, epoch=handed.epoch, round_id=RoundId("r1")),))
    assert [v.verdict for v in done.verdicts] == [Verdict.OK]
    assert decode(Committed, door.ask("GET", path_of(routes.COMMITTED), role="read").json()).offsets == OffsetMap(
        {B0: 10}
    )
    ledger = decode(LedgerAnswer, door.ask("GET", path_of(routes.LEDGER), role="read").json())
    assert [(e.range, e.rows) for e in ledger.entries] == [(OffsetRange(0, 10), 10)]
    assert door.ask("POST", routes.ABANDON_INTENT.format(round_id="r1"), role="job").status_code == 204


def test_errors_arrive_as_what_they_were(world: CoordinatorWorld, door: Door) -> None:
    table = world.create().table
    world.hot.append(PATH, 30)
    world.clock.advance(200)
    (handed,) = door.beat(room=1).tables
    report = {
        "table_id": table.table_id,
        "round_id": "r",
        "snapshot_id": None,
        "epoch": handed.epoch,
        "job": "job",
        "instance": "i1",
        "offsets": OffsetMap({B0: 20}).to_json(),
        "ranges": [{"bucket": "0", "range": [10, 20]}],
    }
    refused = door.ask("POST", routes.COMMITS, report, role="job")
    assert refused.status_code == 409
    error = from_wire(refused.json())
    assert isinstance(error, LedgerGap)
    assert (error.start, error.ledger_end) == (10, 0)
    door.beat("i1")
    door.beat("i2")
    with pytest.raises(Superseded):
        door.beat("i1")
    for body in ({}, {"job": 3, "instance": "x"}, [1], "x"):
        bad = door.ask("POST", routes.HEARTBEAT, body, role="job")
        assert (bad.status_code, bad.json()["code"]) == (400, "invalid-request")
    assert door.ask("GET", routes.EXPLAIN.format(table="db.none")).json()["code"] == "table-not-found"
    assert door.ask("POST", path_of(routes.READ_PLAN), lease_s="soon").json()["code"] == "invalid-request"


@pytest.mark.parametrize(
    ("method", "route", "needed"),
    [
        ("POST", routes.HEARTBEAT, "job"),
        ("POST", routes.LEASE_CHECK, "job"),
        ("POST", routes.COMMITS, "job"),
        ("POST", routes.INTENTS, "job"),
        ("POST", routes.TIER_NOW, "write"),
        ("GET", routes.QUARANTINE, "read"),
        ("POST", routes.QUARANTINE, "write"),
        ("POST", routes.REDRIVE, "write"),
        ("POST", routes.EVOLVE, "write"),
        ("POST", routes.PAUSE, "admin"),
        ("GET", routes.ADOPTION, "admin"),
        ("POST", routes.RESUME, "admin"),
        ("POST", routes.RESYNC, "admin"),
        ("POST", routes.ADOPT, "admin"),
        ("GET", routes.STATUS, "read"),
        ("GET", routes.LEDGER, "read"),
        ("POST", routes.READ_PLAN, "read"),
    ],
)
def test_roles(world: CoordinatorWorld, door: Door, method: str, route: str, needed: str) -> None:
    world.create()
    grants = {
        "read": {"read"},
        "write": {"read", "write"},
        "job": {"read", "job"},
        "admin": {"read", "write", "job", "admin"},
    }
    for role, may in grants.items():
        status = door.ask(method, path_of(route), {}, role=role, limit_s=0.01).status_code
        assert (status == 403) is (needed not in may), f"{role} got {status}"
    assert door.ask(method, path_of(route), role="nobody").status_code == 401


def test_what_people_see(world: CoordinatorWorld, door: Door) -> None:
    world.create()
    world.hot.append(PATH, 3)
    door.beat()
    status = decode(CoordinatorStatus, door.ask("GET", routes.STATUS).json())
    assert [str(t.path) for t in status.tables] == [str(PATH)]
    assert status.figures["jobsLive"] == 1
    assert decode(TableStatus, door.ask("GET", path_of(routes.TABLE_STATUS)).json()).path == PATH
    assert decode(LagExplanation, door.ask("GET", path_of(routes.EXPLAIN)).json()).words
    assert door.ask("GET", routes.JOBS).json()["jobs"][0]["name"] == "job"
    assert door.ask("GET", routes.QUEUE).json()["queue"][0]["path"] == str(PATH)
    assert door.ask("GET", routes.ROUNDS, table=str(PATH)).json() == {"rounds": []}
    answer = decode(AdmissionAnswer, door.ask("POST", routes.ADMISSION, AdmissionQuery(slots=1)).json())
    assert answer.feasible


@pytest.mark.parametrize(
    ("method", "route"),
    [("GET", r) for r in (routes.TABLE_STATUS, routes.EXPLAIN, routes.COMMITTED, routes.LEDGER)]
    + [("POST", r) for r in (routes.PAUSE, routes.RESUME, routes.READ_PLAN)],
)
def test_a_side_may_be_named(world: CoordinatorWorld, door: Door, method: str, route: str) -> None:
    world.create()
    assert door.ask(method, path_of(route), side="default").json()["side"] == "default"
    assert door.ask(method, path_of(route)).json()["side"] == "default"
    unknown = door.ask(method, path_of(route), side="other:changelog")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "side-not-found")
    assert door.ask(method, path_of(route), side="default:heap").json()["code"] == "invalid-request"


def test_operators_over_http(world: CoordinatorWorld, door: Door) -> None:
    world.create()
    world.hot.append(PATH, 3)
    assert door.ask("POST", path_of(routes.PAUSE)).json()["state"] == "paused"
    assert door.ask("POST", path_of(routes.TIER_NOW)).json()["code"] == "table-busy"
    assert door.ask("POST", path_of(routes.RESUME)).json()["state"] == "scheduled"
    assert door.ask("POST", path_of(routes.RESYNC), {"choice": "both"}).json()["code"] == "invalid-request"
    assert door.ask("POST", path_of(routes.RESYNC), {"choice": "resync"}).json()["state"] == "scheduled"


def test_a_read_plan_is_leased_renewed_and_released(world: CoordinatorWorld, door: Door) -> None:
    world.create()
    world.hot.append(PATH, 3)
    plan = decode(ReadPlan, door.ask("POST", path_of(routes.READ_PLAN), role="read", lease_s=5).json())
    assert [t.range for t in plan.tails] == [OffsetRange(0, 3)]
    renew, release = (r.format(lease_id=plan.lease_id) for r in (routes.RENEW_READ, routes.RELEASE_READ))
    assert door.ask("POST", renew, role="read", lease_s=5).status_code == 204
    for _ in range(2):
        assert door.ask("DELETE", release, role="read").status_code == 204
    assert door.ask("POST", renew, role="read").json()["code"] == "snapshot-gone"


def test_a_get_takes_a_lease_for_a_client_of_the_minor_before_alone(world: CoordinatorWorld, door: Door) -> None:
    world.create()
    for said in ({}, {PROTOCOL_HEADER: PROTOCOL}):
        refused = door.ask("GET", path_of(routes.READ_PLAN), role="read", headers=said)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid-request")
    older = door.ask("GET", path_of(routes.READ_PLAN), role="read", headers={PROTOCOL_HEADER: "1.2"})
    assert decode(ReadPlan, older.json()).lease_id


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"bucket_count": 9}, "AlterTable.bucket_count"),
        ({"add_columns": [{"name": "x", "type": "INT", "since": 5}]}, "AlterTable.add_columns.since"),
    ],
)
def test_a_field_that_a_change_does_not_have_is_refused(
    door: Door, world: CoordinatorWorld, body: dict[str, Any], named: str
) -> None:
    world.create()
    answer = door.ask("PATCH", f"{routes.TABLES}/{PATH}", body)
    assert (answer.status_code, answer.json()["facts"]["what"]) == (400, named), answer.text
    descriptor = world.hot.load_table(PATH).descriptor.to_json()
    wrong = {"path": "db.other", "descriptor": {**descriptor, "buckets": 9}}
    answer = door.ask("POST", routes.TABLES, wrong)
    assert (answer.status_code, answer.json()["facts"]["what"]) == (400, "CreateTable.descriptor.buckets"), answer.text


def test_an_error_in_a_message_names_its_table(door: Door, world: CoordinatorWorld) -> None:
    world.create()
    descriptor = world.hot.load_table(PATH).descriptor.to_json()
    bare = {**descriptor, "schema": {**descriptor["schema"], "columns": []}}
    answer = door.ask("POST", routes.TABLES, {"path": "db.bare", "descriptor": bare})
    assert (answer.status_code, answer.json()["facts"]["table"]) == (400, "db.bare"), answer.text


def test_a_thread_that_stands_still_shows_where_operators_look(door: Door, services: Services) -> None:
    well = Heartbeat(name="tick", age_s=1.0, is_well=True)
    still = Heartbeat(name="lakeward-store", age_s=999.0, is_well=False)
    assert door.ask("GET", routes.READY).json() == {"ready": True, "still": []}
    ailing = Door(create_app(replace(services, background=lambda: [well, still])))
    answer = ailing.ask("GET", routes.READY)
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "still": ["lakeward-store"]})


def test_stopped_buckets_are_in_the_status(door: Door, world: CoordinatorWorld) -> None:
    world.create()
    world.hot.stopped.add(PATH)
    (table,) = door.ask("GET", routes.STATUS).json()["tables"]
    assert (table["stopped_buckets"], table["reason"].startswith("bucket 0 takes no writes")) == (1, True)


def test_a_report_without_the_lease_is_held_against_the_lake(world: CoordinatorWorld, door: Door) -> None:
    """A stranger's report, an old epoch's, and one of an instance that never had the table: the lake has no such
    rows."""
    table = world.create().table
    world.hot.append(PATH, 10)
    world.clock.advance(200)
    (handed,) = door.beat(room=2).tables
    honest = CommitReport(
        table_id=table.table_id,
        round_id=RoundId("r1"),
        snapshot_id=SnapshotId("1"),
        epoch=handed.epoch,
        job=JobName("job"),
        instance=InstanceId("i1"),
        offsets=OffsetMap({B0: 10}),
        ranges=(CommittedRange(bucket=B0, range=OffsetRange(0, 10), rows=10),),
    )
    for change in (
        {"job": JobName("other")},
        {"instance": InstanceId("i2")},
        {"epoch": Epoch(handed.epoch + 1)},
    ):
        refused = door.ask("POST", routes.COMMITS, replace(honest, **change), role="job")
        assert refused.json()["code"] == "lake-behind", refused.text
    assert decode(Committed, door.ask("GET", path_of(routes.COMMITTED), role="read").json()).offsets == OffsetMap()
    assert decode(CommitAnswer, door.ask("POST", routes.COMMITS, honest, role="job").json()).first


@pytest.mark.parametrize("slots", [10**30, -1, 100_001])
def test_a_job_cannot_have_more_slots_than_there_are(door: Door, slots: int) -> None:
    body = {"job": "j", "instance": "i", "slots": slots}
    assert door.ask("POST", routes.HEARTBEAT, body, role="job").status_code == 400


def test_an_admission_query_has_its_limit(door: Door) -> None:
    body = {"round_ms": {f"d.t{n}": 1 for n in range(2_001)}}
    refused = door.ask("POST", routes.ADMISSION, body, role="read")
    assert (refused.status_code, refused.json()["code"]) == (429, "quota")


def test_a_peer_that_leaves_in_the_middle_of_a_body_leaves_no_stack_in_the_log(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []
    pieces = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(pieces)

    async def send(message: Any) -> None:
        told.append(message)

    headers = [(b"authorization", b"Bearer admin"), (b"content-type", b"application/json"), (b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "path": routes.HEARTBEAT, "headers": headers, "query_string": b""}
    asyncio.run(create_app(services)({**scope, "http_version": "1.1", "server": ("localhost", 80)}, receive, send))
    assert (told[0]["status"], [r for r in caplog.records if r.exc_info]) == (400, [])


def test_a_token_has_so_many_tables(services: Services, world: CoordinatorWorld) -> None:
    world.create()
    full = Door(create_app(replace(services, quota=TableQuota(max_tables=1))))
    descriptor = world.hot.load_table(PATH).descriptor.to_json()
    refused = full.ask("POST", routes.TABLES, {"path": "db.other", "descriptor": descriptor})
    assert (refused.status_code, refused.json()["code"], refused.json()["facts"]["what"]) == (429, "quota", "tables")
    again = {"path": str(PATH), "descriptor": descriptor, "if_not_exists": True}
    assert full.ask("POST", routes.TABLES, again).status_code == 200


def test_a_token_has_so_many_bytes_of_definitions(services: Services, world: CoordinatorWorld) -> None:
    world.create()
    descriptor = world.hot.load_table(PATH).descriptor.to_json()
    size, table = len(json.dumps(descriptor)), routes.TABLE.format(table=PATH)
    column = {"add_columns": [Column(name="more", type=Int64Type()).to_json()]}
    full = Door(create_app(replace(services, quota=TableQuota(max_bytes=size))))
    asked: tuple[tuple[str, str, Any], ...] = (
        ("POST", routes.TABLES, {"path": "db.other", "descriptor": descriptor}),
        ("PATCH", table, column),
        ("PATCH", table, {"properties": {"owner": "x" * 100}}),
        ("POST", routes.SQL, {"query": f"ALTER TABLE {PATH} ADD COLUMN more BIGINT"}),
        ("POST", routes.ADOPT.format(table="db.other"), {"descriptor": descriptor}),
    )
    for method, path, body in asked:
        refused = full.ask(method, path, body)
        facts = refused.json()["facts"]
        assert (refused.status_code, facts["what"]) == (429, "bytes of table definitions"), path
        assert facts["used"] > facts["limit"] == size
    roomy = Door(create_app(replace(services, quota=TableQuota(max_bytes=3 * size))))
    assert roomy.ask("PATCH", table, column).status_code == 200
    again = {"add_columns": [Column(name="again", type=Int64Type()).to_json()]}
    assert roomy.ask("PATCH", table, again).status_code == 429, "each schema that the table had counts"


STRANGE: tuple[Any, ...] = (10**30, -1, 1e308, "x" * 10_000, None, [], {}, "\x00", "../../x", True, [[[[]]]])


def test_a_table_with_anything_in_any_field_is_made_or_refused(world: CoordinatorWorld, door: Door) -> None:
    """The application raises what it has no answer for."""
    world.create(pk=True, buckets=2, table__datalake__freshness="1 min")
    descriptor = world.hot.load_table(PATH).descriptor.to_json()
    bodies = [changed(descriptor, path, value) for path in places_in(descriptor) for value in STRANGE]
    deep = [f"{'ARRAY<' * n}BIGINT{'>' * n}" for n in (50, 500, 5_000)]
    bodies += [changed(descriptor, ("schema", "columns", 1, "type"), text) for text in deep]
    asked = [("POST", routes.TABLES, {"path": f"db.n{n}", "descriptor": body}) for n, body in enumerate(bodies)]
    for body, answer in zip(bodies, door.ask_each(asked), strict=True):
        assert answer.status_code in (201, 400, 404), (body, answer.text)


def test_messages_with_anything_in_any_field_are_taken_or_refused(world: CoordinatorWorld, door: Door) -> None:
    table = world.create().table
    world.hot.append(PATH, 10)
    world.clock.advance(200)
    (handed,) = door.beat(room=2).tables
    side = {"table_id": table.table_id, "side": "default", "kind": "tier", "epoch": handed.epoch}
    result = {"round_id": "r1", "snapshot_id": "1", "rows": 10, "phases": {"wait_s": 0.1}}
    error = {"code": "lake-unavailable", "message": "x", "facts": {"a": 1}}
    beat = {
        "job": "job",
        "instance": "i1",
        "slots": 1,
        "room": 1,
        "pool": "default",
        "kinds": ["tier"],
        "metrics_url": None,
        "tiering": [{**side, "round_id": "r1", "progress": {"rows": 1}}],
        "finished": [{**side, "round_id": "r1", "result": result, "caught_up_at_ms": 1}],
        "failed": [{**side, "error": error, "given_back": False}],
    }
    ranges = [{"bucket": "0", "range": [0, 10], "rows": 10}]
    report = {
        **side,
        "kind": "round",
        "round_id": "r1",
        "snapshot_id": "1",
        "job": "job",
        "instance": "i1",
        "offsets": {"offsets": {"": [[0, 10]]}},
        "ranges": ranges,
        "lake_rows": 10,
    }
    intent = {**side, "round_id": "r1", "token": None, "fence": 0, "prefix": "x", "recorded_at_ms": 1}
    messages = [
        ("POST", routes.HEARTBEAT, beat),
        ("POST", routes.COMMITS, report),
        ("POST", routes.INTENTS, intent),
        ("POST", routes.LEASE_CHECK, {**side, "job": "job", "instance": "i1", "round_id": "r1"}),
        (
            "POST",
            routes.ADMISSION,
            {"slots": 1, "round_ms": {"db.t": 1}, "freshness_ms": {"db.t": 1}},
        ),
        ("PATCH", routes.TABLE, {"add_columns": [{"name": "n", "type": "BIGINT"}], "properties": {"a": "b"}}),
        ("POST", routes.PAUSE, {"reason": "x"}),
        ("POST", routes.RESYNC, {"choice": "keep"}),
        ("POST", routes.MAINTAIN, {"kind": "compact"}),
        ("POST", routes.PARTITIONS, {"partition": "x"}),
    ]
    for method, route, message in messages:
        bodies = [changed(message, path, value) for path in places_in(message) for value in STRANGE]
        answers = door.ask_each((method, path_of(route), body) for body in bodies)
        for body, answer in zip(bodies, answers, strict=True):
            assert answer.status_code < 500, (route, body, answer.text)
    assert door.ask("GET", routes.STATUS).status_code == door.ask("GET", routes.ROUNDS).status_code == 200
    world.restart()
    assert world.coordinator.views.status().warnings == ()


def test_a_token_has_so_many_reads_under_way(services: Services, world: CoordinatorWorld) -> None:
    world.create()
    full, plan = Door(create_app(replace(services, max_reads=2))), path_of(routes.READ_PLAN)
    leases = [full.ask("POST", plan, role="read", lease_s=60).json()["lease_id"] for _ in range(2)]
    refused = full.ask("POST", plan, role="read")
    assert (refused.status_code, refused.json()["facts"]["what"]) == (429, "reads under way")
    assert full.ask("POST", plan, role="write").status_code == 200, "another token has reads of its own"
    assert full.ask("DELETE", routes.RELEASE_READ.format(lease_id=leases[0]), role="read").status_code == 204
    assert full.ask("POST", plan, role="read", lease_s=60).status_code == 200
    world.clock.advance(50)
    assert full.ask("POST", routes.RENEW_READ.format(lease_id=leases[1]), role="read", lease_s=60).status_code == 204
    world.clock.advance(20)
    assert [full.ask("POST", plan, role="read").status_code for _ in range(2)] == [200, 429], (
        "one ended, one was renewed"
    )


def test_names_of_jobs_have_their_limit(door: Door) -> None:
    beats = [("POST", routes.HEARTBEAT, {"job": f"j{n}", "instance": "i", "slots": 0}) for n in range(MOST_JOBS)]
    assert {answer.status_code for answer in door.ask_each(beats)} == {200}
    refused = door.ask("POST", routes.HEARTBEAT, {"job": "another", "instance": "i", "slots": 0})
    assert (refused.status_code, refused.json()["code"]) == (429, "quota")
    assert door.ask("POST", routes.HEARTBEAT, {"job": "j5", "instance": "i", "slots": 0}).status_code == 200


def test_a_token_asks_for_few_simulations_at_once(world: CoordinatorWorld, door: Door) -> None:
    world.create()
    with ThreadPoolExecutor(MOST_ASKING + 1) as pool:
        with world.coordinator.board.lock:  # no simulation begins without it
            asked = [pool.submit(door.ask, "POST", routes.ADMISSION, {}, role="read") for _ in range(MOST_ASKING + 1)]
            (refused,) = wait(asked, return_when=FIRST_COMPLETED).done
        assert (refused.result().status_code, refused.result().json()["code"]) == (429, "quota")
        assert sorted(f.result().status_code for f in asked) == [200] * MOST_ASKING + [429]


def test_job_names_can_belong_to_tokens(services: Services) -> None:
    bound = Door(create_app(replace(services, bound_jobs=True)))
    for job, status in (("j", 200), ("j-2", 200), ("other", 403), ("jj", 403)):
        body = {"job": job, "instance": "i", "slots": 1}
        assert bound.ask("POST", routes.HEARTBEAT, body, role="job").status_code == status


def test_a_token_has_so_many_calls_under_way(services: Services) -> None:
    full = Door(create_app(replace(services, max_requests=0)))
    refused = full.ask("GET", routes.STATUS, role="read")
    assert (refused.status_code, refused.json()["facts"]["what"]) == (429, "HTTP calls under way")


def test_maintenance_over_http(world: CoordinatorWorld, door: Door) -> None:
    """What a compaction would do, and why none can be asked for."""
    for method in ("GET", "POST"):
        answer = door.ask(method, routes.MAINTAIN.format(table="db.nowhere"))
        assert (answer.status_code, "db.nowhere" in answer.text) == (404, True)
    world.create()
    told = door.ask("GET", path_of(routes.MAINTAIN), role="read").json()
    assert (told["table"], told["files"], told["groups"]) == (str(PATH), 0, [])
    assert told["sizes"][0]["files"] == "below 1 MB"
    assert told["ages"][-1]["files"] == "older"
    assert door.ask("POST", path_of(routes.MAINTAIN), role="read").status_code == 403
    door.ask("POST", path_of(routes.PAUSE))
    refused = door.ask("POST", path_of(routes.MAINTAIN))
    assert (refused.status_code, "paused" in refused.text) == (409, True)
    assert door.ask("GET", path_of(routes.MAINTAIN)).status_code == 200, "looking is allowed"


def test_lakes_are_listed_and_one_is_asked(tmp_path: Path) -> None:
    world = CoordinatorWorld(tmp_path, named=("finance",))
    door = Door(create_app(services_of(world)))
    world.create("t", table__datalake__lakes="default, finance")
    world.create("u")
    listed = door.ask("GET", routes.LAKES, role="read").json()["lakes"]
    assert [(row["name"], row["is_default"], row["tables"]) for row in listed] == [
        ("default", True, 2),
        ("finance", False, 1),
    ]
    checked = door.ask("POST", routes.LAKE_CHECK.format(lake="finance")).json()
    assert (checked["trouble"], checked["took_ms"]) == ("", 0)
    refused = door.ask("POST", routes.LAKE_CHECK.format(lake="nope"))
    assert refused.status_code == 404
    assert "default, finance" in str(from_wire(refused.json()))
    assert door.ask("POST", routes.LAKE_CHECK.format(lake="finance"), role="read").status_code == 403
    world.close()


def test_a_tenant_sees_and_changes_its_own_database_and_cuts(tmp_path: Path) -> None:
    world = CoordinatorWorld(tmp_path, named=("finance",))
    texts = ["a:admin:admin", "ann:admin:ann:db.*", "bob:write:bob:other.*", "one:admin:one:db.t"]
    door = Door(create_app(replace(services_of(world), tokens=TokenSet.parse(texts))))
    world.create()

    def databases(role: str) -> list[Any]:
        listed = door.ask("GET", routes.DATABASES, role=role).json()["databases"]
        return [(d["name"], d["lake"], d["tables"], d["tokens"]) for d in listed]

    database = routes.DATABASE.format(database="db")
    for role, code in (("bob", 403), ("one", 403), ("ann", 200)):
        assert door.ask("PATCH", database, {"lake": "finance"}, role=role).status_code == code, role
    assert databases("admin") == [("db", "finance", 1, ["a", "ann", "one"])]
    assert databases("ann") == [("db", "finance", 1, [])]
    assert databases("bob") == []
    refused = door.ask("PATCH", database, {"lake": "nope"})
    assert (refused.status_code, "default, finance" in refused.text) == (404, True)
    assert door.ask("PATCH", database, {"lakes": "finance"}).status_code == 400

    cut = {"name": "c", "tables": ["db.t"]}
    for role, code in (("bob", 403), ("one", 201)):
        assert door.ask("POST", routes.CUTS, cut, role=role).status_code == code, role
    assert [len(door.ask("GET", routes.CUTS, role=role).json()["cuts"]) for role in ("ann", "bob")] == [1, 0]
    shown = routes.CUT.format(cut="c")
    assert door.ask("GET", shown, role="bob").status_code == 404
    assert [door.ask("DELETE", shown, role=role).status_code for role in ("bob", "ann", "ann")] == [403, 200, 404]

    schedule = {"name": "hourly", "tables": ["db.t"], "every_ms": 3_600_000, "keep": 3}
    for role, code in (("bob", 403), ("one", 201), ("one", 400)):
        assert door.ask("POST", routes.CUT_SCHEDULES, schedule, role=role).status_code == code, role
    listed = [door.ask("GET", routes.CUT_SCHEDULES, role=role).json()["schedules"] for role in ("ann", "bob")]
    assert ([s["schedule"]["keep"] for s in listed[0]], listed[1]) == ([3], [])
    ended = routes.CUT_SCHEDULE.format(schedule="hourly")
    assert [door.ask("DELETE", ended, role=role).status_code for role in ("bob", "ann", "ann")] == [403, 200, 404]
    world.close()


def test_a_tenant_finds_nothing_of_another(tmp_path: Path) -> None:
    world = CoordinatorWorld(tmp_path, named=("finance", "open"))
    lakes = world.coordinator.board.options.lakes
    assert isinstance(lakes, dict)
    lakes["finance"] = replace(lakes["finance"], databases=("fin*",))
    texts = ["a:admin:admin", "ann:admin:ann:other.*", "one:admin:one:other.*+db.u"]
    door = Door(create_app(replace(services_of(world), tokens=TokenSet.parse(texts))))
    world.create(table__datalake__lakes="finance")
    world.create("u", table__datalake__lakes="default")
    for name, tables in (("theirs", ["db.t"]), ("mixed", ["db.t", "db.u"])):
        assert door.ask("POST", routes.CUTS, {"name": name, "tables": tables}).status_code == 201
    schedule = {"name": "hourly", "tables": ["db.t"], "every_ms": 3_600_000, "keep": 3}
    assert door.ask("POST", routes.CUT_SCHEDULES, schedule).status_code == 201

    def codes(method: str, path: str, body: Any = None) -> list[int]:
        return [int(door.ask(method, path, body, role=role).status_code) for role in ("ann", "one", "admin")]

    assert codes("DELETE", routes.CUT_SCHEDULE.format(schedule="hourly")) == [404, 404, 200]
    assert codes("GET", routes.CUT.format(cut="theirs")) == [404, 404, 200]
    assert codes("DELETE", routes.CUT.format(cut="theirs")) == [404, 404, 200]
    assert codes("DELETE", routes.CUT.format(cut="mixed")) == [404, 403, 200]
    assert codes("GET", routes.JOBS) == [403, 403, 200]
    for role in ("ann", "one"):
        assert door.ask("POST", routes.BACKUPS, {"target": str(tmp_path / "copy")}, role=role).status_code == 403
    assert codes("POST", routes.LAKE_CHECK.format(lake="finance")) == [404, 404, 200]

    def shown(path: str, method: str = "GET", **params: Any) -> list[Any]:
        return [door.ask(method, path, role=role, **params).json() for role in ("ann", "one", "admin")]

    assert [len(probe["catalogs"]) for probe in shown(routes.PROBE, "POST")] == [0, 1, 2]
    assert [len(probe["catalogs"]) for probe in shown(routes.PROBE, "POST", table="db.t")] == [0, 0, 1]
    assert [len(listed["lakes"]) for listed in shown(routes.LAKES)] == [2, 2, 3]
    assert ["finance" in status["lakes"] for status in shown(routes.STATUS)] == [False, False, True]
    world.close()


@pytest.mark.parametrize(
    "said",
    [
        {"iceberg.write.metadata.path": "/elsewhere"},
        {"iceberg.write.data.path": "s3://others/rows"},
        {"paimon.data-file.external-paths": "file:///elsewhere"},
        {"iceberg.write.data.path": "others/rows"},
        {"paimon.data-file.path-directory": "../others"},
    ],
)
def test_a_tenant_does_not_say_where_files_lie(tmp_path: Path, said: dict[str, str]) -> None:
    world = CoordinatorWorld(tmp_path)
    texts = ["a:admin:admin", "ann:admin:ann:db.*"]
    door = Door(create_app(replace(services_of(world), tokens=TokenSet.parse(texts))))
    world.create()
    for method, path, body in (
        ("POST", routes.TABLES, memory_table("db.n", **said)),
        ("PATCH", routes.TABLE.format(table="db.t"), {"properties": said}),
        ("POST", routes.ADOPT.format(table="db.n"), {"descriptor": memory_table("db.n", **said)["descriptor"]}),
    ):
        refused = door.ask(method, path, body, role="ann")
        assert refused.status_code == 403, refused.text
        assert "a place for files of db." in refused.text
        assert door.ask(method, path, body).status_code != 403
    world.close()


def test_a_tenant_names_only_lakes_that_are_open_to_its_database(tmp_path: Path) -> None:
    world = CoordinatorWorld(tmp_path, named=("finance", "open"))
    lakes = world.coordinator.board.options.lakes
    assert isinstance(lakes, dict)
    lakes["finance"] = replace(lakes["finance"], databases=("fin*", "books"))
    texts = ["a:admin:admin", "ann:admin:ann:db.*", "fin:admin:fin:finance.*"]
    door = Door(create_app(replace(services_of(world), tokens=TokenSet.parse(texts))))
    world.create(table__datalake__lakes="default")
    table = routes.TABLE.format(table="db.t")

    def altered(role: str, **properties: str) -> Any:
        changes = {f"table.datalake.{key}": value for key, value in properties.items()}
        return door.ask("PATCH", table, {"properties": changes}, role=role)

    def set_lake(role: str, database: str, lake: str) -> int:
        return int(door.ask("PATCH", routes.DATABASE.format(database=database), {"lake": lake}, role=role).status_code)

    for properties in ({"lakes": "default, finance"}, {"changelog": "finance"}):
        refused = altered("ann", **properties)
        assert refused.status_code == 403
        assert "lake finance for tables of db needs" in str(from_wire(refused.json()))
        assert "db among the databases that [lakes.finance] names" in str(from_wire(refused.json()))
    assert altered("ann", lakes="default, open").status_code == 200
    assert altered("ann", lakes="default, nope").status_code == 400, "as everybody is told"
    assert altered("admin", lakes="default, finance").status_code == 200
    assert altered("ann", lakes="finance, default").status_code == 200, "it is there already"
    assert [set_lake(*call) for call in (("ann", "db", "finance"), ("fin", "finance", "finance"))] == [403, 200]
    foreign = door.ask("POST", routes.ADOPT.format(table="db.f"), {"foreign": True, "lake": "finance"}, role="ann")
    assert foreign.status_code == 403
    named = memory_table("db.n", **{"table.datalake.lakes": "finance"})
    assert door.ask("POST", routes.TABLES, named, role="ann").status_code == 403
    assert set_lake("admin", "db", "finance") == 200
    assert door.ask("POST", routes.TABLES, named, role="ann").status_code == 201, "an administrator gave it"
    world.close()


def memory_table(path: str, **properties: str) -> dict[str, Any]:
    columns = Schema(columns=(Column(name="id", type=Int64Type(nullable=False)),))
    descriptor = TableDescriptor(schema=columns, bucket_function=BucketFunction.FLUSS, properties=properties)
    return {"path": path, "descriptor": descriptor.to_json()}


def test_a_read_lease_is_its_tokens_alone(services: Services, world: CoordinatorWorld) -> None:
    world.create()
    door, plan = Door(create_app(services)), path_of(routes.READ_PLAN)
    lease = door.ask("POST", plan, role="read", lease_s=60).json()["lease_id"]
    for method, route in (("POST", routes.RENEW_READ), ("DELETE", routes.RELEASE_READ)):
        assert door.ask(method, route.format(lease_id=lease), role="write").status_code == 403
        assert door.ask(method, route.format(lease_id=lease), role="read").status_code == 204


def test_a_tenant_is_told_of_its_own_tables_alone_how_many_a_lake_has(tmp_path: Path) -> None:
    world = CoordinatorWorld(tmp_path)
    world.create()
    texts = ["a:admin:admin", "ann:admin:ann:db.*", "ben:read:ben:other.*"]
    door = Door(create_app(replace(services_of(world), tokens=TokenSet.parse(texts))))
    counts = {r: [x["tables"] for x in door.ask("GET", routes.LAKES, role=r).json()["lakes"]] for r in ("ann", "ben")}
    assert counts == {"ann": [1], "ben": [0]}
    world.close()
