# SPDX-License-Identifier: Apache-2.0
"""An attacker with the network ports and a token for the tables of one database. It sees nothing of the other tenant's
tables, changes nothing of them, and the server answers others as before."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import psutil
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from lakeward.errors import LakewardError
from lakeward.model import TableInfo
from lakeward.protocol import routes
from tests.kit.serverprocess import ServerProcess

SECRET = "the-salary-of-ben"
THEIRS, OURS = "ben.secret", "ann.t"
SETTINGS = {
    "server.tokens": "boss:admin:b0,ann:admin:a1:ann.*,ben:admin:b2:ben.*",
    "datalake.format": "iceberg",
    "coordinator.tier-now.limit": "1 s",
}
SPELLINGS = (
    *(THEIRS, "BEN.secret", "ben%2Esecret", "ann.t/../ben.secret", "ann%00.t", "ann.t;ben.secret", "`ben`.secret"),
    *("ben.secret$snapshots", "ann.*+ben.secret", " ben.secret", "ben.secret ", "\uff42en.secret"),
)
COLUMNS = "id BIGINT NOT NULL, name STRING"
DEEP = 5_000


class Attacker:
    """Calls with ann's token; each answer is looked through for what it must not have."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.url, timeout=120, headers={"authorization": "Bearer a1"})
        self.faults: list[tuple[str, int, str]] = []

    def call(self, method: str, path: str, **how: Any) -> httpx.Response:
        try:
            answer = self.http.request(method, path, **how)
        except httpx.TransportError as error:
            body = bytes(how.get("content", b""))[:40]
            raise AssertionError(f"{method} {path[:200]}, {body!r}: {error!r}") from error
        if answer.status_code == 500 or any(word in answer.text for word in self.forbidden()):
            self.faults.append((f"{method} {path[:200]}", answer.status_code, answer.text[:300]))
        return answer

    def forbidden(self) -> tuple[str, ...]:
        return (SECRET, "Traceback", str(self.server.data), "file:///")

    def refused(self, method: str, path: str, **how: Any) -> None:
        answer = self.call(method, path, **how)
        if answer.status_code < 400:
            self.faults.append((f"{method} {path[:200]} was accepted", answer.status_code, answer.text[:300]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("tenants") / "data", settings=SETTINGS)
    server.start()
    with server.client(token="b0") as boss:
        boss.create_table(THEIRS, COLUMNS, primary_key="id", freshness="1 h").upsert([{"id": 1, "name": SECRET}])
        boss.create_table(OURS, COLUMNS, primary_key="id", freshness="1 h").upsert([{"id": 1, "name": "ann"}])
    yield server
    server.close()


@pytest.fixture
def attacker(server: ServerProcess) -> Iterator[Attacker]:
    """Afterwards the other tenant has what it had."""
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    attacker = Attacker(server)
    yield attacker
    attacker.http.close()
    assert attacker.faults == []
    assert process.memory_info().rss < before + (400 << 20)
    with server.client(token="b2") as ben:
        assert ben.list_tables() == [THEIRS]
        assert ben.read(THEIRS).to_table().to_pylist() == [{"id": 1, "name": SECRET}]


def test_names_that_lead_to_the_other_tenant(attacker: Attacker) -> None:
    document = attacker.call("GET", "/openapi.json")
    boss = httpx.get(f"{attacker.server.url}/openapi.json", headers={"authorization": "Bearer b0"})
    paths = (boss if boss.status_code == 200 else document).json()["paths"]
    for path, methods in paths.items():
        for method in methods:
            for name in SPELLINGS if "{table}" in path else ("",):
                place = path.replace("{table}", name if "%" in name else quote(name, safe=""))
                place = place.replace("{partition}", "p").replace("{side}", "x")
                if "{" not in place and (name or method == "get"):
                    how: dict[str, Any] = {} if method == "get" else {"json": {}}
                    answer = attacker.call(method.upper(), place, **how)
                    if name and answer.status_code < 300:
                        attacker.faults.append((f"{method} {place}", answer.status_code, answer.text[:200]))


def test_tables_and_columns_that_are_not_meant(attacker: Attacker) -> None:
    """Creates and alters: names, places, options and columns."""
    with attacker.server.client(token="a1") as ann:
        for name in (
            "ann",
            "ann.",
            "ann..t",
            "ann.a/b",
            "ann.a\\b",
            "ann.\x00",
            "ann." + "x" * 5_000,
            "ann.T t",
            THEIRS,
        ):
            with pytest.raises(LakewardError):
                ann.create_table(name, COLUMNS)
        for key, value in {
            "iceberg.write.data.path": "file:///tmp",
            "iceberg.write.py-location-provider.impl": "builtins.eval",
            "iceberg.py-io-impl": "pandas.read_pickle",
            "iceberg.s3.endpoint": "http://127.0.0.1:1",
            "iceberg.location": f"file://{attacker.server.data}/warehouse/ben/secret",
            "table.datalake.lakes": "other",
            "table.log.ttl": "-1",
            "bucket.num": "1000000",
        }.items():
            with pytest.raises(LakewardError):
                ann.create_table("ann.options", COLUMNS, properties={key: value})
            with pytest.raises(LakewardError):
                ann.alter_table(OURS, properties={key: value})
    path = routes.TABLE.format(table=OURS)
    nested = "bigint"
    for _ in range(DEEP):
        nested = f"array<{nested}>"
    wrong: list[dict[str, Any]] = [
        {"add_columns": [{"name": "__offset", "type": "bigint"}]},
        {"add_columns": [{"name": "NAME", "type": "string"}]},
        {"add_columns": [{"name": f"c{n}", "type": "string"} for n in range(6_000)]},
        {"add_columns": [{"name": "deep", "type": nested}]},
        {"add_columns": [{"name": "x" * 100_000, "type": "string"}]},
        {"add_columns": [{"name": "n", "type": "decimal(999999999, 2)"}]},
        {"drop_columns": ["id"]},
        {"rename_columns": {"name": "id"}},
        {"widen_columns": {"id": "string"}},
        {"nullable_columns": ["id"]},
        {"after": {"id": "nowhere"}},
        {"column_comments": {"name": "x" * 2_000_000}},
        {"columns": {"__proto__": 1}},
    ]
    for body in wrong:
        attacker.refused("PATCH", path, json=body)
    assert attacker.call("GET", path).status_code == 200


def test_rows_that_are_not_meant(attacker: Attacker) -> None:
    path = routes.TABLE_ROWS.format(table=OURS)
    bodies: list[tuple[str, bytes, dict[str, str]]] = [
        ("application/json", b"[" * DEEP + b"]" * DEEP, {}),
        ("application/json", b'{"id":' * DEEP + b"1" + b"}" * DEEP, {}),
        ("application/json", b'{"id": 1e999}', {}),
        ("application/json", b'{"id": ' + b"9" * 100_000 + b"}", {}),
        ("application/json", b'{"id": NaN}', {}),
        ("application/json", b'{"id": 1, "id": 2, "__offset": 1}', {}),
        ("application/x-ndjson", b"{}\n" * 400_000, {}),
        ("application/x-ndjson", b"[" * 200_000, {}),
        ("text/csv", b"id" + b",x" * 20_000 + b"\n1\n", {}),
        ("text/csv", b'id,name\nx,"' + b"x" * 2_000_000, {}),
        ("application/vnd.apache.arrow.stream", b"\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\0" * 1_000, {}),
        ("application/json", gzip.compress(b"[" + b" " * 200_000_000 + b"]"), {"content-encoding": "gzip"}),
        ("application/json", b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff", {"content-encoding": "zstd"}),
        ("application/json", b'{"id": 1}', {"idempotency-key": "k" * 10_000}),
        ("application/json", b'{"id": 1}', {"content-encoding": "gzip, gzip, gzip"}),
    ]
    for kind, body, headers in bodies:
        attacker.refused("POST", path, content=body, headers={"content-type": kind, **headers})
    attacker.refused("POST", routes.TABLE_ROWS.format(table=THEIRS), json={"id": 2, "name": "ann"})
    stream = pa.BufferOutputStream()
    chance = random.Random(7)
    with pa.ipc.new_stream(stream, pa.schema([("id", pa.int64()), ("name", pa.string())])) as writer:
        writer.write_batch(pa.record_batch({"id": [5], "name": ["five"]}))
    right = stream.getvalue().to_pybytes()
    for _ in range(100):
        broken = bytearray(right)
        for _ in range(chance.randint(1, 6)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        attacker.call(
            "POST", path, content=bytes(broken), headers={"content-type": "application/vnd.apache.arrow.stream"}
        )


def test_a_quarantine_that_is_not_its_own(attacker: Attacker) -> None:
    with attacker.server.client(token="a1") as ann:
        ann.create_table("ann.q", COLUMNS, properties={"table.schema.contract": "quarantine"})
    rows = routes.TABLE_ROWS.format(table="ann.q")
    assert attacker.call("POST", rows, json=[{"id": "x" * 300_000}] * 20).json()["quarantined"] == 20
    listed = attacker.call("GET", routes.QUARANTINE.format(table="ann.q")).json()["rows"]
    redrive = routes.REDRIVE.format(table="ann.q")
    attacker.refused("POST", redrive, json={"ids": ["0-0"]})
    attacker.refused("POST", redrive, json={"corrected": {listed[0]["id"]: "[" * DEEP}, "ids": "x"})
    attacker.call("POST", redrive, json={"corrected": {listed[0]["id"]: "[" * DEEP}})
    attacker.call("POST", redrive, json={"corrected": {listed[0]["id"]: json.dumps({"id": 10**400})}})
    for table in (THEIRS, f"{THEIRS}__quarantine", "ben.q"):
        attacker.refused("GET", routes.QUARANTINE.format(table=table))
        attacker.refused("POST", routes.REDRIVE.format(table=table), json={})
    attacker.refused("POST", routes.TABLE_ROWS.format(table="ann.q__quarantine"), json=[{"id": "a", "row": SECRET}])


QUERIES = """
SELECT * FROM ben.secret
SELECT * FROM "ben"."secret"
SELECT * FROM BEN.SECRET
SELECT * FROM ann.t, ben.secret
WITH x AS (SELECT * FROM ben.secret) SELECT * FROM x
SELECT (SELECT max(name) FROM ben.secret)
SELECT * FROM query('SELECT * FROM ben.secret')
SELECT * FROM query_table('ben.secret')
SELECT * FROM read_text('/etc/passwd')
SELECT * FROM '/etc/passwd'
SELECT * FROM glob('/*')
SELECT * FROM ann.t UNION ALL SELECT * FROM ben.secret
SELECT getenv('HOME')
SELECT * FROM duckdb_secrets()
PRAGMA database_list
ATTACH '/tmp/x.db'
COPY (SELECT 1) TO '/tmp/x'
SELECT 1; SELECT * FROM ben.secret
SELECT * FROM ann.t WHERE EXISTS (FROM ben.secret)
FROM ben.secret
SELECT * FROM system.main.duckdb_tables()
DESCRIBE ben.secret
SUMMARIZE ben.secret
SHOW TABLES
EXPLAIN SELECT * FROM ben.secret
SELECT * FROM ann.t JOIN LATERAL (SELECT * FROM ben.secret) USING (id)
PIVOT ben.secret ON name
"""


def test_queries_that_leave_the_tenant(attacker: Attacker) -> None:
    for query in QUERIES.strip().splitlines():
        answer = attacker.call("POST", routes.SQL, json={"query": query})
        if "getenv" not in query and answer.status_code < 300 and "ben" in query:
            attacker.faults.append((query, answer.status_code, answer.text[:300]))
    assert attacker.call("POST", routes.SQL, json={"query": "SELECT count(*) FROM ann.t"}).status_code == 200


def test_a_catalog_that_is_shared(attacker: Attacker) -> None:
    base, ours = "/iceberg/v1", "/iceberg/v1/namespaces/ann/tables/t"
    theirs = {"namespace": ["ben"], "name": "secret"}
    with attacker.server.client(token="b2") as ben:
        metadata = ben.server.ask("GET", f"{base}/namespaces/ben/tables/secret")["metadata-location"]
    for prefix in ("", "live/", "live;at-least=x/", "cut:nothing/", "../live/"):
        for path in (
            "namespaces/ben",
            "namespaces/ben/tables",
            "namespaces/ben/tables/secret",
            "namespaces/ben%1Fx/tables",
        ):
            answer = attacker.call("GET", f"{base}/{prefix}{path}")
            if answer.status_code < 300 and "secret" in answer.text:
                attacker.faults.append((path, answer.status_code, answer.text[:200]))
    attacker.forbidden = lambda: (SECRET, "Traceback")  # type: ignore[method-assign]  # paths of its own are its own
    schema = {"type": "struct", "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}]}
    places = (
        metadata.rpartition("/metadata/")[0],
        f"file://{attacker.server.data}",
        "file:///etc",
        "s3://x/y",
        "http://127.0.0.1:1/x",
    )
    for place in places:
        attacker.refused(
            "POST", f"{base}/namespaces/ann/tables", json={"name": "at", "schema": schema, "location": place}
        )
        attacker.refused(
            "POST", ours, json={"requirements": [], "updates": [{"action": "set-location", "location": place}]}
        )
    for location in (
        metadata,
        f"{places[0]}/../secret/metadata/x.json",
        "file:///etc/passwd",
        "file:///dev/zero",
        "http://127.0.0.1:1/x",
    ):
        attacker.refused("POST", f"{base}/namespaces/ann/register", json={"name": "r", "metadata-location": location})
    mine = {"namespace": ["ann"], "name": "t"}
    for source, target in (
        (theirs, mine),
        (mine, theirs),
        (mine, {"namespace": ["ben"], "name": "new"}),
        (theirs, {"namespace": ["ann"], "name": "stolen"}),
    ):
        attacker.refused("POST", f"{base}/tables/rename", json={"source": source, "destination": target})
    attacker.refused("DELETE", f"{base}/namespaces/ben/tables/secret?purgeRequested=true")
    attacker.refused("DELETE", f"{base}/namespaces/ben")
    attacker.refused("POST", f"{base}/namespaces/ben/properties", json={"updates": {"location": "file:///tmp"}})
    attacker.refused("POST", f"{base}/namespaces/ann/properties", json={"updates": {"location": "file:///tmp"}})
    commit = {
        "table-changes": [
            {"identifier": theirs, "requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
        ]
    }
    attacker.refused("POST", f"{base}/transactions/commit", json=commit)
    impl = {"action": "set-properties", "updates": {"write.py-location-provider.impl": "builtins.eval"}}
    attacker.refused("POST", ours, json={"requirements": [], "updates": [impl]})
    snapshot = {
        "snapshot-id": 7,
        "sequence-number": 1,
        "timestamp-ms": 1,
        "manifest-list": metadata,
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    attacker.refused(
        "POST", ours, json={"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": snapshot}]}
    )


def test_the_live_warehouse(attacker: Attacker) -> None:
    attacker.forbidden = lambda: (SECRET, "Traceback")  # type: ignore[method-assign]
    for token in (
        "x",
        "x" * 10_000,
        base64.b64encode(b"{}").decode(),
        base64.b64encode(json.dumps({"table_id": "x", "ends": {"0": 10**30}}).encode()).decode(),
    ):
        attacker.call("GET", f"/iceberg/v1/{quote('live;at-least=' + token, safe='')}/namespaces/ann/tables/t")
        attacker.call("GET", f"/iceberg/v1/config?warehouse={quote('live;at-least=' + token)}")
    for name in ("cut:" + "x" * 5_000, "cut:../x", "cut:", "live;x=1", "live;at-least=", "nothing"):
        attacker.call("GET", f"/iceberg/v1/config?warehouse={quote(name)}")
        attacker.refused("GET", f"/iceberg/v1/{quote(name, safe='')}/namespaces/ben/tables/secret")
    with attacker.server.client(token="a1") as ann:
        for turn in range(30):
            ann.table(OURS).upsert([{"id": turn, "name": "x"}])
            assert attacker.call("GET", "/iceberg/v1/live/namespaces/ann/tables/t").status_code == 200
    attacker.refused("POST", "/iceberg/v1/live/namespaces/ann/tables/t", json={"requirements": [], "updates": []})


def test_flight_calls_for_the_other_tenant(attacker: Attacker) -> None:
    with attacker.server.client(token="b0") as boss:
        info = boss.show_table(THEIRS)
        location = boss.info().flight_uri.replace("grpc://", "grpc+tcp://")
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer a1")], timeout=60)
    with flight.connect(location) as client:
        for message in messages(info):
            for kind in ("get", "put", *ACTS):
                with pytest.raises((flight.FlightError, pa.ArrowException, OSError)) as refused:
                    call_flight(client, kind, message, options)
                assert SECRET not in str(refused.value)
                assert "Traceback" not in str(refused.value)


def call_flight(client: flight.FlightClient, kind: str, message: bytes, options: flight.FlightCallOptions) -> None:
    if kind == "get":
        client.do_get(flight.Ticket(message), options).read_all()
    elif kind == "put":
        put(client, message, options)
    else:
        list(client.do_action(flight.Action(kind, message), options))


ACTS = ("load-table", "freeze", "bounds", "offset-at", "take-snapshot", "take-snapshots")


def messages(info: TableInfo) -> list[bytes]:
    """Right for the table, but for the token; and the other's table under a name of the attacker's."""
    names = (THEIRS, "BEN.SECRET", OURS, "ann.t\x00ben.secret", " ben.secret")
    rest: dict[str, Any] = {"table_id": info.table_id, "schema_id": 1, "bucket": "0", "width": 2, "columns": None}
    read = {
        "offsets": {},
        "wait_ms": 0,
        "range": [0, 10],
        "log_offset": 0,
        "snapshot_id": "x",
        "holder": "h",
        "at_ms": 0,
    }
    return [
        json.dumps({**rest, **read, "table": name, "kind": kind, "writer": 7}).encode()
        for name in names
        for kind in ("log", "tail", "snapshot", "upsert", "append", "delete")
    ]


def put(client: flight.FlightClient, command: bytes, options: flight.FlightCallOptions) -> None:
    rows = pa.record_batch({"id": pa.array([1], pa.int64()), "name": pa.array(["taken"])})
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), rows.schema, options)
    with writer:
        writer.write_with_metadata(rows, b'{"bucket": "0", "sequence": 0}')
        writer.done_writing()
        while reader.read() is not None:
            continue
